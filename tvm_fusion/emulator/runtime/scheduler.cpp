// One block: its threads are fibers, which run one at a time and change where they must wait.
//
// A fiber runs until it reaches a barrier, a warp primitive or its end. The order in which fibers
// are picked is the configured one; a right kernel gives the same result in any.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "runtime.h"

__thread emulator::Thread* emulator_thread __attribute__((tls_model("initial-exec")));

// Saves the callee-saved registers on the stack, stores the stack pointer, takes the other one.
asm(R"(.text
.local emulator_switch
emulator_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
)");
extern "C" __attribute__((visibility("hidden"))) void emulator_switch(void** save, void* to);

namespace emulator {

thread_local Worker* worker = nullptr;
static std::atomic<uint32_t> intervals{1};
uint32_t new_interval() { return intervals.fetch_add(1, std::memory_order_relaxed); }

static constexpr size_t kStack = 256 << 10, kPage = 4096;
static constexpr unsigned kMostThreads = 1024;

void run_fiber() {
  worker->launch->code->call(worker->launch->arguments);
  worker->stop();
}

void Worker::stop() {
  Fiber* fiber = current();
  fiber->state = State::kDone;
  emulator_switch(&fiber->stack_pointer, scheduler_stack_);
  abort();  // a fiber that has ended is not resumed
}

void Worker::wait(State state, int line, const char* waits_for) {
  Fiber* fiber = current();
  fiber->state = state;
  fiber->line = line;
  fiber->waits_for = waits_for;
  emulator_switch(&fiber->stack_pointer, scheduler_stack_);
}

void Worker::fail(int line, void* address, const std::string& message) {
  if (failed) return;
  failed = true;
  failed_block = block_index;
  failure = {message, line, address};
  if (const Fiber* fiber = current()) {
    failure.in_thread = true;
    std::copy_n(fiber->block_index, 3, failure.block);
    std::copy_n(fiber->thread_index, 3, failure.thread);
  }
  launch->failed = true;
}

bool Worker::in_stack_guard(const char* address) const {
  return on_stack(address) && size_t(address - stacks_) % kStack < kPage;
}

void Worker::prepare(Launch* next) {
  launch = next;
  failed = expired = false;
  threads = next->block[0] * next->block[1] * next->block[2];
  warps = (threads + 31) / 32;
  if (!stacks_) {
    stacks_size_ = kStack * kMostThreads;
    stacks_ = static_cast<char*>(mmap(nullptr, stacks_size_, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    for (unsigned i = 0; i < kMostThreads; ++i) mprotect(stacks_ + i * kStack, kPage, PROT_NONE);
    fibers.resize(kMostThreads);
  }
  static_shared.resize(next->code->shared_end - next->code->shared_begin);
  dynamic_shared.resize(next->dynamic_bytes);
  warp_order_.resize(warps);
  lane_order_.resize(32);
  std::iota(warp_order_.begin(), warp_order_.end(), 0);
  std::iota(lane_order_.begin(), lane_order_.end(), 0);
  if (config.order == Order::kReverse) {
    std::reverse(warp_order_.begin(), warp_order_.end());
    std::reverse(lane_order_.begin(), lane_order_.end());
  }
}

void Worker::start_fibers() {
  const unsigned *grid = launch->grid, *block = launch->block;
  for (unsigned i = 0; i < threads; ++i) {
    Fiber& fiber = fibers[i];
    fiber.thread_index[0] = i % block[0];
    fiber.thread_index[1] = i / block[0] % block[1];
    fiber.thread_index[2] = i / (block[0] * block[1]);
    fiber.block_index[0] = unsigned(block_index % grid[0]);
    fiber.block_index[1] = unsigned(block_index / grid[0] % grid[1]);
    fiber.block_index[2] = unsigned(block_index / (uint64_t(grid[0]) * grid[1]));
    std::copy_n(block, 3, fiber.block_size);
    std::copy_n(grid, 3, fiber.grid_size);
    fiber.static_shared = static_shared.begin;
    fiber.dynamic_shared = dynamic_shared.begin;
    fiber.linear = i;
    fiber.lane = i & 31;
    fiber.warp = i >> 5;
    fiber.state = State::kReady;
    fiber.copies.clear();
    fiber.copy_group = 0;
    // A stack as emulator_switch() leaves it: six registers, then where to return to.
    // Not all at the same distance, or they would compete for the same lines of the cache.
    void** top = reinterpret_cast<void**>(stacks_ + (i + 1) * kStack - i % 128 * 320) - 2;
    top[0] = reinterpret_cast<void*>(run_fiber);
    top[1] = nullptr;
    fiber.stack_pointer = top - 6;
    memset(fiber.stack_pointer, 0, 6 * sizeof(void*));
  }
}

void Worker::run_block(uint64_t linear_block) {
  block_index = linear_block;
  static_shared.poison();
  dynamic_shared.poison();
  start_fibers();
  interval = first_interval = new_interval();
  memset(warp_epochs, 0, sizeof warp_epochs);
  random_.seed(config.seed + unsigned(linear_block));
  running = true;
  for (;;) {
    bool progress = false;
    if (config.order == Order::kRandom) {
      std::shuffle(warp_order_.begin(), warp_order_.end(), random_);
    }
    for (unsigned warp : warp_order_) {
      progress |= run_warp(warp);
      if (failed) break;
    }
    if (failed || release_barrier()) break;
    if (!progress && !failed) report_deadlock();
    if (failed) break;
  }
  running = false;
  emulator_thread = nullptr;
}

// Runs the lanes of a warp until all wait for something outside of it, or have ended.
bool Worker::run_warp(unsigned warp) {
  bool progress = false;
  const unsigned first = warp * 32, count = std::min(threads - first, 32u);
  do {
    if (config.order == Order::kRandom) {
      std::shuffle(lane_order_.begin(), lane_order_.end(), random_);
    }
    for (unsigned lane : lane_order_) {
      if (lane >= count || fibers[first + lane].state != State::kReady) continue;
      emulator_thread = &fibers[first + lane];
      emulator_switch(&scheduler_stack_, fibers[first + lane].stack_pointer);
      progress = true;
      if (expired && !failed) report_expiry();
      if (failed) return true;
    }
  } while (release_warp(warp) && !failed);
  return progress;
}

// Lets go on those lanes whose warp primitive is complete; true if there were any.
bool Worker::release_warp(unsigned warp) {
  const unsigned first = warp * 32, count = std::min(threads - first, 32u);
  const unsigned existing = count == 32 ? ~0u : (1u << count) - 1;
  unsigned waiting = 0;
  for (unsigned l = 0; l < count; ++l) {
    waiting |= unsigned(fibers[first + l].state == State::kExchange) << l;
  }
  bool any = false;
  while (waiting) {  // one group of lanes with the same mask after the other
    const Fiber& leader = fibers[first + unsigned(__builtin_ctz(waiting))];
    unsigned group = 0;
    for (unsigned l = 0; l < count; ++l) {
      group |= unsigned((waiting >> l) & 1 && fibers[first + l].mask == leader.mask) << l;
    }
    waiting &= ~group;
    const unsigned wanted = leader.mask & existing;
    if ((group != wanted || wanted != leader.mask) && exchange_is_wrong(leader)) return false;
    if (group != wanted) continue;
    exchange(leader, group);
    if (failed) return false;
    any = true;
  }
  return any || release_active_masks(warp);
}

// Hands the values of all lanes of a group to each of them.
void Worker::exchange(const Fiber& leader, unsigned group) {
  const unsigned first = leader.warp * 32, bytes = leader.bytes;
  const char* const name = leader.waits_for;
  const int line = leader.line;
  exchanged_.resize(32 * bytes);
  memset(exchanged_.data(), 0xFF, exchanged_.size());  // for lanes that do not take part
  for (unsigned rest = group; rest; rest &= rest - 1) {
    Fiber& fiber = fibers[first + unsigned(__builtin_ctz(rest))];
    if (fiber.bytes != bytes || (fiber.waits_for != name && strcmp(fiber.waits_for, name) != 0)) {
      emulator_thread = &fiber;
      return fail(fiber.line, nullptr,
                  text("lanes of one warp meet in different primitives: %s, and %s in line %d",
                       fiber.waits_for, name, line));
    }
    if (bytes) memcpy(exchanged_.data() + fiber.lane * bytes, fiber.mine, bytes);
  }
  for (unsigned rest = group; rest; rest &= rest - 1) {
    Fiber& fiber = fibers[first + unsigned(__builtin_ctz(rest))];
    if (bytes) memcpy(fiber.all, exchanged_.data(), exchanged_.size());
    fiber.state = State::kReady;
  }
  // A __syncwarp() orders memory among the lanes; a shuffle or vote does not.
  if (!bytes) ++warp_epochs[leader.warp];
}

bool Worker::exchange_is_wrong(const Fiber& fiber) {
  const unsigned first = fiber.warp * 32;
  for (unsigned l = 0; l < 32; ++l) {
    if (!((fiber.mask >> l) & 1)) continue;
    const bool outside = first + l >= threads;
    // The full mask in a block of fewer than 32 threads is common, and works on a GPU.
    if (outside && fiber.mask == ~0u && !config.strict_shuffles) continue;
    if (outside || fibers[first + l].state == State::kDone) {
      emulator_thread = const_cast<Fiber*>(&fiber);
      fail(fiber.line, nullptr,
           text("%s with mask 0x%08x names lane %u, %s", fiber.waits_for, fiber.mask, l,
                outside ? "which the block does not have" : "whose thread has ended"));
      return true;
    }
  }
  return false;
}

// __activemask() tells who runs together. Here: all lanes that reach the same line before any
// lane of the warp can do anything else, the most that a GPU would ever keep together.
bool Worker::release_active_masks(unsigned warp) {
  const unsigned first = warp * 32, count = std::min(threads - first, 32u);
  int line = 0;
  unsigned mask = 0;
  for (unsigned l = 0; l < count; ++l) {
    const Fiber& fiber = fibers[first + l];
    if (fiber.state == State::kReady) return false;
    if (fiber.state != State::kActiveMask || (line && fiber.line != line)) continue;
    line = fiber.line;
    mask |= 1u << l;
  }
  for (unsigned l = 0; l < count; ++l) {
    if (!((mask >> l) & 1)) continue;
    fibers[first + l].active = mask;
    fibers[first + l].state = State::kReady;
  }
  return mask != 0;
}

// Opens the barrier if all threads wait there; true when the block has ended.
bool Worker::release_barrier() {
  unsigned live = 0, waiting = 0;
  Fiber *first = nullptr, *other = nullptr;
  for (unsigned i = 0; i < threads; ++i) {
    Fiber& fiber = fibers[i];
    if (fiber.state == State::kDone) continue;
    ++live;
    if (fiber.state != State::kBarrier) continue;
    ++waiting;
    if (!first) first = &fiber;
    if (fiber.line != first->line) other = &fiber;
  }
  if (!live) return true;
  if (waiting != live) return false;
  if (other) {
    emulator_thread = other;
    fail(other->line, nullptr,
         "divergent barrier: threads of one block wait at different __syncthreads(): " +
             who_waits());
    return false;
  }
  if (live != threads && config.check) {
    emulator_thread = first;
    fail(first->line, nullptr,
         text("divergent barrier: %u of %u threads have ended and never reach __syncthreads()",
              threads - live, threads));
    return false;
  }
  for (unsigned i = 0; i < threads; ++i) {
    if (fibers[i].state == State::kBarrier) fibers[i].state = State::kReady;
  }
  interval = new_interval();
  if (profiling) profile_barrier(first->line);
  return false;
}

void Worker::report_deadlock() {
  for (unsigned i = 0; i < threads; ++i) {
    if (fibers[i].state == State::kDone || fibers[i].state == State::kReady) continue;
    emulator_thread = &fibers[i];
    fail(fibers[i].line, nullptr, "deadlock: " + who_waits());
    return;
  }
}

void Worker::report_expiry() {
  fail(0, nullptr, text("the launch took longer than the time limit of %g seconds",
                        config.time_limit_seconds));
}

// "32 threads at __syncthreads in line 7, from (0,0,0); 1 thread has ended".
std::string Worker::who_waits() const {
  std::map<std::pair<int, std::string>, std::vector<const Fiber*>> groups;
  unsigned ended = 0;
  for (unsigned i = 0; i < threads; ++i) {
    if (fibers[i].state == State::kDone) {
      ++ended;
    } else {
      groups[{fibers[i].line, fibers[i].waits_for}].push_back(&fibers[i]);
    }
  }
  std::string all;
  for (const auto& [place, members] : groups) {
    const unsigned* index = members[0]->thread_index;
    all += text("%s%zu thread%s at %s in line %d, from (%u,%u,%u)", all.empty() ? "" : "; ",
                members.size(), members.size() == 1 ? "" : "s", place.second.c_str(), place.first,
                index[0], index[1], index[2]);
    if (members[0]->state == State::kExchange) all += text(" with mask 0x%08x", members[0]->mask);
  }
  if (ended) all += text("%s%u ended", all.empty() ? "" : "; ", ended);
  return all;
}

}  // namespace emulator
