// Signals: a fault in a kernel ends its thread with a report instead of the process, and so does
// the end of the time limit.
//
// A handler cannot do much. It records the failure and lets the interrupted code continue in
// Worker::stop(), which leaves the fiber for good.
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdlib>
#include <dlfcn.h>

#include "runtime.h"

namespace emulator {

static constexpr int kFaults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
static constexpr size_t kSignalStack = 64 << 10;
static struct sigaction previous[4], previous_expiry;
static int expiry_signal() { return SIGRTMIN + 9; }

static void stop_fiber() { worker->stop(); }

static void continue_in_stop(ucontext_t* context) {
  greg_t* registers = context->uc_mcontext.gregs;
  registers[REG_RSP] = (registers[REG_RSP] & ~greg_t(15)) - 8 - 128;  // below the red zone
  registers[REG_RSP] = (registers[REG_RSP] & ~greg_t(15)) - 8;
  registers[REG_RIP] = reinterpret_cast<greg_t>(stop_fiber);
}

static std::string name_fault(int signal, const siginfo_t* info) {
  const char* address = static_cast<const char*>(info->si_addr);
  if (signal == SIGSEGV && info->si_code == SI_KERNEL) {  // without the address
    return "misaligned: a vector access at an address that is no multiple of its size, or at one "
           "that no memory has";
  }
  if (signal == SIGFPE) return "arithmetic fault: an integer division by zero";
  if (signal == SIGILL) return "an instruction that stands for code never to be reached";
  if (worker->in_stack_guard(address)) return "a thread needs more than 252 KiB of local memory";
  for (auto* shared : {&worker->static_shared, &worker->dynamic_shared}) {
    if (shared->holds(address)) {
      return text("out of bounds: an access at byte %td of %zu bytes of shared memory",
                  address - shared->begin, shared->size);
    }
  }
  if (const Buffer* buffer = find_buffer(address)) {
    return text("out of bounds: an access at byte %td of a device buffer of %zu bytes",
                address - buffer->begin, buffer->size);
  }
  return text("out of bounds: an access at %p, which is no device memory",
              static_cast<const void*>(address));
}

static void on_fault(int signal, siginfo_t* info, void* context_pointer) {
  auto* context = static_cast<ucontext_t*>(context_pointer);
  if (!worker || !worker->running || !emulator_thread) {
    // Not ours: as if this handler had never been there.
    for (int i = 0; i < 4; ++i) {
      if (kFaults[i] == signal) sigaction(signal, &previous[i], nullptr);
    }
    return;
  }
  void* pc = reinterpret_cast<void*>(context->uc_mcontext.gregs[REG_RIP]);
  // source_line() looks up where a call returns to, one byte behind the call.
  worker->fail(0, static_cast<char*>(pc) + 1,
               name_fault(signal, info));
  // A stack overflow has no stack left to stop on.
  if (worker->in_stack_guard(static_cast<const char*>(info->si_addr))) {
    context->uc_mcontext.gregs[REG_RSP] += 64 << 10;
  }
  continue_in_stop(context);
}

// The signal may come in the middle of the runtime, which must not be left half-way: then only the
// flag is set, and the timer tries again.
static void on_expiry(int, siginfo_t*, void* context_pointer) {
  if (!worker || !worker->running) return;
  worker->expired = true;
  auto* context = static_cast<ucontext_t*>(context_pointer);
  void* pc = reinterpret_cast<void*>(context->uc_mcontext.gregs[REG_RIP]);
  Dl_info in, kernel;
  if (!dladdr(pc, &in) || !dladdr(reinterpret_cast<void*>(worker->launch->code->call), &kernel) ||
      in.dli_fbase != kernel.dli_fbase) {
    return;
  }
  worker->fail(0, static_cast<char*>(pc) + 1,
               text("the launch took longer than the time limit of %g seconds",
                    config.time_limit_seconds));
  continue_in_stop(context);
}

FaultHandler::FaultHandler() {
  struct sigaction action {};
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  action.sa_sigaction = on_fault;
  for (int i = 0; i < 4; ++i) sigaction(kFaults[i], &action, &previous[i]);
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  action.sa_sigaction = on_expiry;
  sigaction(expiry_signal(), &action, &previous_expiry);
}

FaultHandler::~FaultHandler() {
  for (int i = 0; i < 4; ++i) sigaction(kFaults[i], &previous[i], nullptr);
  sigaction(expiry_signal(), &previous_expiry, nullptr);
}

static thread_local stack_t previous_stack;
static thread_local std::unique_ptr<char[]> signal_stack;

ThreadFaults::ThreadFaults() {
  if (!signal_stack) signal_stack.reset(new char[kSignalStack]);
  stack_t stack{};
  stack.ss_sp = signal_stack.get();
  stack.ss_size = kSignalStack;
  sigaltstack(&stack, &previous_stack);
  if (config.time_limit_seconds <= 0) return;
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = expiry_signal();
  event._sigev_un._tid = pid_t(syscall(SYS_gettid));
  if (timer_create(CLOCK_MONOTONIC, &event, reinterpret_cast<timer_t*>(&timer_)) != 0) return;
  const double limit = config.time_limit_seconds;
  itimerspec when{};
  when.it_value.tv_sec = time_t(limit);
  when.it_value.tv_nsec = long((limit - double(time_t(limit))) * 1e9) + 1;
  when.it_interval.tv_nsec = 1000000;
  timer_settime(static_cast<timer_t>(timer_), 0, &when, nullptr);
}

ThreadFaults::~ThreadFaults() {
  if (config.time_limit_seconds > 0) timer_delete(static_cast<timer_t>(timer_));
  sigaltstack(&previous_stack, nullptr);
}

}  // namespace emulator
