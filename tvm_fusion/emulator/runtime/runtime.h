// The runtime's own data: configuration, kernels, memory, and the worker that runs one block.
//
//   driver.cpp     the CUDA driver and runtime functions that TVM calls
//   modules.cpp    CUDA source -> compiled code, by a call back into Python
//   launch.cpp     one launch: limits, argument checks, its blocks one by one or on several cores
//   scheduler.cpp  one block: its threads as fibers, who waits for whom, who may go on
//   calls.cpp      what kernels call: barriers, shuffles, votes
//   copies.cpp     cp.async
//   memory.cpp     device buffers and shared memory, with guards around them
//   checks.cpp     what happens at each instrumented access: bounds, alignment, initialisation
//   races.cpp      data races, by barrier and warp epochs
//   sanitizer.cpp  the functions that g++'s instrumentation calls
//   faults.cpp     signals: guard pages, division by zero, the time limit
//   profile.cpp    bytes, sectors, bank conflicts by source line
//   failure.cpp    the text of a report
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "abi.h"

namespace emulator {

enum class Order : int { kForward, kReverse, kRandom };

struct Config {
  Order order = Order::kForward;
  unsigned seed = 0;
  bool check = false;
  long profile_blocks = 0;  // blocks of each launch to profile; 0 none, -1 all
  bool strict_shuffles = false;
  double time_limit_seconds = 0;  // 0: none
  unsigned cores = 1;
  // The device.
  int major = 8, minor = 0;
  unsigned shared_limit = 48 << 10;  // dynamic shared memory on request

  bool instrumented() const { return check || profile_blocks != 0; }
};
extern Config config;

// ------------------------------------------------------------------------------------ failures

// The first thing that went wrong in a launch. Recorded where it happens, worded afterwards.
struct Failure {
  std::string message;
  int line = 0;              // of the CUDA source; 0: find it from `address`
  void* address = nullptr;   // in the compiled kernel
  bool in_thread = false;
  unsigned block[3] = {}, thread[3] = {};
};

// A `printf` into a string.
std::string text(const char* format, ...) __attribute__((format(printf, 1, 2)));

// -------------------------------------------------------------------------------------- memory

// Who touched one byte last. An interval is the time between two barriers of one block; each has
// a number of its own, counted over all launches, so that nothing needs to be reset.
struct Touch {
  uint32_t interval = 0;
  uint32_t thread : 12;       // or one of the values below
  uint32_t warp_epoch : 19;   // __syncwarp()s of the thread's warp before it
  uint32_t atomic : 1;
};
constexpr uint32_t kSeveralWarps = 0xFFF;  // several threads of several warps
constexpr uint32_t kOneWarp = 0x800;       // + warp: several threads of one warp, in one epoch
struct Shadow {
  Touch written, read;
};

struct Buffer {
  char* begin;
  size_t size;
  char* map;  // the pages, guard pages included
  size_t map_size;
  Shadow* shadow = nullptr;  // one for each byte; made at the first checked access
};
Buffer* find_buffer(const void* address);  // whose pages hold the address; nullptr if none
Buffer* allocate(size_t bytes);            // nullptr: out of memory
bool release(void* begin);
std::string damaged_canary();  // what was written past the end of a buffer; empty if nothing

// Shared memory of one block: pages with guards, and the part of them in use.
class SharedMemory {
 public:
  void resize(size_t bytes);
  void poison();
  bool holds(const char* address) const { return address >= map_ && address < map_ + map_size_; }
  char* begin = nullptr;
  size_t size = 0;
  std::vector<Shadow> shadow;

 private:
  char* map_ = nullptr;
  size_t map_size_ = 0;
};

// ------------------------------------------------------------------------------------- kernels

// A kernel compiled in one way.
struct Code {
  void (*call)(void**) = nullptr;
  int bound = 0;
  const char* signature = "";  // 'p' for a pointer, '-' for another argument
  const char* arguments = "";  // their names, separated by commas
  char *shared_begin = nullptr, *shared_end = nullptr;
};
// A compiled source.
struct Library {
  void* handle = nullptr;
  std::string path;
};
struct Module;
struct Kernel {
  std::string name;
  Module* module;
  int dynamic_limit = 48 << 10;
  Code code[2];  // plain, instrumented
};
struct Module {
  std::string source;
  bool has_atomics = false;
  Library libraries[2];
  std::map<std::string, std::unique_ptr<Kernel>> kernels;
};
Module* load_module(const char* image, std::string* error);
Kernel* find_kernel(Module* module, const char* name, std::string* error);
// Compiles it if that has not been done; nullptr and an error otherwise.
const Code* code_of(Kernel* kernel, bool instrumented, std::string* error);
int source_line(void* address);  // of the CUDA source, for an address in a kernel; 0: unknown

// -------------------------------------------------------------------------------------- launch

struct Launch {
  Kernel* kernel;
  const Code* code;
  bool instrumented;
  unsigned grid[3], block[3], dynamic_bytes;
  void** arguments;
  uint32_t first_interval;
  std::atomic<bool> failed{false};
};
// Empty, or what went wrong.
std::string launch(Kernel* kernel, const unsigned grid[3], const unsigned block[3],
                   unsigned dynamic_bytes, void** arguments);
std::string describe(const Launch& launch, const Failure& failure);

// ----------------------------------------------------------------------------------- scheduler

enum class State : uint8_t { kReady, kBarrier, kExchange, kActiveMask, kDone };

struct AsyncCopy {
  void* to;
  const void* from;
  unsigned bytes, from_bytes;
  int group, line;
};

struct Fiber : Thread {
  void* stack_pointer;
  State state;
  int line;  // where it waits
  const char* waits_for;
  unsigned mask, bytes;
  const void* mine;
  void* all;
  bool predicate;
  unsigned active;
  std::vector<AsyncCopy> copies;
  int copy_group;
};

// Runs one block at a time. There is one for each core in use.
class Worker {
 public:
  void prepare(Launch* launch);
  void run_block(uint64_t linear_block);
  // Called on a fiber: gives control back to the scheduler, or ends the fiber.
  void wait(State state, int line, const char* waits_for);
  [[noreturn]] void stop();
  // Records the first failure; the scheduler stops after it.
  void fail(int line, void* address, const std::string& message);

  Fiber* current() const { return static_cast<Fiber*>(emulator_thread); }
  bool on_stack(const char* a) const { return a >= stacks_ && a < stacks_ + stacks_size_; }
  bool in_stack_guard(const char* address) const;

  Launch* launch = nullptr;
  Failure failure;
  bool failed = false, running = false;
  volatile bool expired = false;  // the time limit
  uint64_t failed_block = 0, block_index = 0;
  std::vector<Fiber> fibers;
  unsigned threads = 0, warps = 0;
  SharedMemory static_shared, dynamic_shared;
  uint32_t interval = 0, first_interval = 0;
  uint32_t warp_epochs[32] = {};
  bool profiling = false;

 private:
  friend void run_fiber();
  void start_fibers();
  bool run_warp(unsigned warp);
  bool release_warp(unsigned warp);
  bool release_active_masks(unsigned warp);
  bool exchange_is_wrong(const Fiber& fiber);
  void exchange(const Fiber& leader, unsigned group);
  bool release_barrier();
  void report_deadlock();
  void report_expiry();
  std::string who_waits() const;

  char* stacks_ = nullptr;
  size_t stacks_size_ = 0;
  void* scheduler_stack_ = nullptr;
  std::vector<unsigned> warp_order_, lane_order_;
  std::vector<char> exchanged_;
  std::mt19937 random_;
};
extern thread_local Worker* worker;  // of this operating-system thread; null outside of a launch
uint32_t new_interval();

// ------------------------------------------------------------------------------------- checks

void check_access(char* address, unsigned bytes, int kind, int line, void* pc);
// What races with this access, or nothing.
std::string find_race(Shadow* shadow, unsigned bytes, int kind, bool global);

class FaultHandler {  // while it lives, faults of this process's kernels end as failures
 public:
  FaultHandler();
  ~FaultHandler();
};
class ThreadFaults {  // the same for one operating-system thread: signal stack and time limit
 public:
  ThreadFaults();
  ~ThreadFaults();

 private:
  void* timer_ = nullptr;
};

// ------------------------------------------------------------------------------------ profile

void profile_launch(const Launch& launch);
void profile_access(const char* address, unsigned bytes, int kind, Buffer* buffer, int line,
                    void* pc, unsigned thread);
void profile_barrier(int line);
void profile_block_end(const Worker& worker);
void reset_profile();
std::string profile_json();

}  // namespace emulator
