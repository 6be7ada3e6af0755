// One launch: is it within the device's limits, and then its blocks, one by one or on all cores.
#include <algorithm>
#include <mutex>
#include <thread>

#include "runtime.h"

namespace emulator {

Config config;

static constexpr unsigned kStaticLimit = 48 << 10;

// What a GPU would refuse, or nothing.
static std::string refuse(const Launch& launch) {
  const unsigned *grid = launch.grid, *block = launch.block;
  const uint64_t threads = uint64_t(block[0]) * block[1] * block[2];
  const std::string shape = text("grid (%u,%u,%u), block (%u,%u,%u)", grid[0], grid[1], grid[2],
                                 block[0], block[1], block[2]);
  if (!threads || !grid[0] || !grid[1] || !grid[2]) return "an extent of zero: " + shape;
  if (threads > 1024 || block[2] > 64) return "more than 1024 threads per block: " + shape;
  if (grid[0] > 0x7FFFFFFF || grid[1] > 65535 || grid[2] > 65535) return "too large: " + shape;
  if (launch.code->bound && threads > unsigned(launch.code->bound)) {
    return text("%u threads per block, but __launch_bounds__(%d)", unsigned(threads),
                launch.code->bound);
  }
  const size_t fixed = launch.code->shared_end - launch.code->shared_begin;
  if (fixed > kStaticLimit) {
    return text("%zu bytes of static shared memory, more than %u", fixed, kStaticLimit);
  }
  if (launch.dynamic_bytes > unsigned(launch.kernel->dynamic_limit)) {
    return text("%u bytes of dynamic shared memory, but the kernel's attribute allows %d",
                launch.dynamic_bytes, launch.kernel->dynamic_limit);
  }
  if (fixed + launch.dynamic_bytes > std::max(config.shared_limit, kStaticLimit)) {
    return text("%zu bytes of shared memory, more than the device's %u",
                fixed + launch.dynamic_bytes, config.shared_limit);
  }
  return "";
}

static uint64_t count_blocks(const Launch& launch) {
  return uint64_t(launch.grid[0]) * launch.grid[1] * launch.grid[2];
}

static Worker& get_worker(unsigned index) {
  static auto* workers = new std::vector<std::unique_ptr<Worker>>;
  while (workers->size() <= index) workers->push_back(std::make_unique<Worker>());
  return *(*workers)[index];
}

// Blocks in the configured order on this core.
static void run_in_order(Launch* launch) {
  Worker& mine = get_worker(0);
  worker = &mine;
  ThreadFaults faults;
  mine.prepare(launch);
  const uint64_t count = count_blocks(*launch);
  std::vector<uint32_t> order;
  if (config.order == Order::kRandom) {
    order.resize(count);
    for (uint64_t i = 0; i < count; ++i) order[i] = uint32_t(i);
    std::shuffle(order.begin(), order.end(), std::mt19937(config.seed));
  }
  const long wanted = config.profile_blocks;
  for (uint64_t i = 0; i < count && !launch->failed; ++i) {
    mine.profiling = wanted < 0 || i < uint64_t(wanted);
    mine.run_block(config.order == Order::kReverse  ? count - 1 - i
                   : config.order == Order::kRandom ? order[i]
                                                    : i);
    if (mine.profiling && !mine.failed) profile_block_end(mine);
  }
  worker = nullptr;
}

// Blocks on several cores; only without instrumentation and atomics, where it cannot be noticed.
static void run_in_parallel(Launch* launch, unsigned cores) {
  std::atomic<uint64_t> next{0};
  const uint64_t count = count_blocks(*launch);
  get_worker(cores - 1);  // make them all before there are several threads
  auto work = [&](unsigned index) {
    worker = &get_worker(index);
    ThreadFaults faults;
    worker->prepare(launch);
    worker->profiling = false;
    for (uint64_t i = next++; i < count && !launch->failed; i = next++) worker->run_block(i);
    worker = nullptr;
  };
  std::vector<std::thread> others;
  for (unsigned i = 1; i < cores; ++i) others.emplace_back(work, i);
  work(0);
  for (std::thread& other : others) other.join();
}

static unsigned cores_for(const Launch& launch) {
  if (launch.instrumented || config.order != Order::kForward || config.seed ||
      launch.kernel->module->has_atomics) {
    return 1;
  }
  // Starting a thread takes as long as a few small blocks.
  return unsigned(std::min<uint64_t>(config.cores, std::max<uint64_t>(count_blocks(launch) / 4, 1)));
}

std::string launch(Kernel* kernel, const unsigned grid[3], const unsigned block[3],
                   unsigned dynamic_bytes, void** arguments) {
  static std::mutex one_at_a_time;
  std::lock_guard<std::mutex> lock(one_at_a_time);
  std::string error;
  const bool instrumented = config.instrumented();
  const Code* code = code_of(kernel, instrumented, &error);
  if (!code) return error;
  Launch now{kernel, code, instrumented};
  std::copy_n(grid, 3, now.grid);
  std::copy_n(block, 3, now.block);
  now.dynamic_bytes = dynamic_bytes;
  now.arguments = arguments;
  now.first_interval = new_interval();
  error = refuse(now);
  if (!error.empty()) return describe(now, {"launch refused: " + error});
  if (config.profile_blocks) profile_launch(now);
  const unsigned cores = cores_for(now);
  {
    FaultHandler faults;
    if (cores > 1) {
      run_in_parallel(&now, cores);
    } else {
      run_in_order(&now);
    }
  }
  const Worker* first = nullptr;  // the failure of the first block, as if run in order
  for (unsigned i = 0; i < cores; ++i) {
    const Worker& each = get_worker(i);
    if (each.failed && (!first || each.failed_block < first->failed_block)) first = &each;
  }
  if (first) return describe(now, first->failure);
  error = damaged_canary();
  return error.empty() ? "" : describe(now, {error});
}

}  // namespace emulator
