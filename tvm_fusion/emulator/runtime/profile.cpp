// Counts what a profiler would: for each access in the source, the requests of whole warps, the
// 32-byte sectors or shared-memory wavefronts they take, and the least that could do.
//
// A block's accesses are logged and summed up when it ends. The n-th access of each thread at one
// place belongs to the n-th request of its warp there.
#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "runtime.h"

namespace emulator {

namespace {

struct Logged {
  uint64_t address;
  void* pc;
  int line;
  uint32_t occurrence;
  uint16_t thread;
  uint8_t bytes, kind;
  bool global;
};

struct Site {  // one access in the compiled kernel
  int line = 0;
  bool global = false;
  int kind = 0;
  unsigned width = 0;
  uint64_t requests = 0, bytes = 0, transactions = 0, least = 0;
};

struct Argument {
  std::string name;
  uint64_t begin = 0, size = 0;
  uint64_t loaded = 0, distinct = 0, distinct_in_blocks = 0, stored = 0;
  std::vector<uint32_t> seen;  // 1 + the block that loaded a byte last; 0: none
};

struct KernelProfile {
  std::string path;
  uint64_t launches = 0, blocks = 0, threads = 0, barriers = 0;
  std::map<void*, Site> sites;
  std::map<int, uint64_t> barrier_lines;
  std::vector<Argument> arguments;
};

std::map<std::string, KernelProfile>& kernels() {
  static auto* all = new std::map<std::string, KernelProfile>;
  return *all;
}
KernelProfile* current;
std::vector<Logged> block_log;
uint32_t block_number;

// The 32-byte sectors that a request touches, against those its bytes need at least.
void count_sectors(const Logged* first, const Logged* last, Site* site) {
  std::vector<uint64_t> sectors, words;
  for (const Logged* one = first; one != last; ++one) {
    for (uint64_t at = one->address / 32; at <= (one->address + one->bytes - 1) / 32; ++at) {
      sectors.push_back(at);
    }
    for (unsigned i = 0; i < one->bytes; ++i) words.push_back(one->address + i);
  }
  auto count = [](std::vector<uint64_t>& all) {
    std::sort(all.begin(), all.end());
    return uint64_t(std::unique(all.begin(), all.end()) - all.begin());
  };
  site->transactions += count(sectors);
  site->least += (count(words) + 31) / 32;
}

// A request of 4-byte accesses is one wavefront, one of 8 or 16 bytes two or four, each of a
// quarter of the lanes; two different words in one of the 32 banks cost another.
void count_wavefronts(const Logged* first, const Logged* last, Site* site) {
  const unsigned lanes = first->bytes <= 4 ? 32 : first->bytes == 8 ? 16 : 8;
  std::map<unsigned, std::vector<uint64_t>> phases;
  for (const Logged* one = first; one != last; ++one) {
    auto& words = phases[one->thread % 32 / lanes];
    for (unsigned i = 0; i < one->bytes; i += 4) words.push_back((one->address + i) / 4);
  }
  for (auto& [phase, words] : phases) {
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    unsigned banks[32] = {}, most = 0;
    for (uint64_t word : words) most = std::max(most, ++banks[word % 32]);
    site->transactions += most;
    site->least += 1;
  }
}

// Bytes that a request takes from an argument's buffer; lanes that read the same byte count once.
void count_argument(const Logged* first, const Logged* last) {
  for (Argument& argument : current->arguments) {
    std::vector<uint64_t> bytes;
    for (const Logged* one = first; one != last; ++one) {
      if (one->address < argument.begin || one->address >= argument.begin + argument.size) continue;
      for (unsigned i = 0; i < one->bytes; ++i) bytes.push_back(one->address + i - argument.begin);
    }
    if (bytes.empty()) continue;
    std::sort(bytes.begin(), bytes.end());
    bytes.erase(std::unique(bytes.begin(), bytes.end()), bytes.end());
    if (first->kind != kRead) argument.stored += bytes.size();
    if (first->kind == kWrite) continue;
    argument.loaded += bytes.size();
    for (uint64_t byte : bytes) {
      argument.distinct += !argument.seen[byte];
      argument.distinct_in_blocks += argument.seen[byte] != block_number;
      argument.seen[byte] = block_number;
    }
  }
}

void append(std::string* json, const std::string& item) {
  if (!json->empty() && json->back() != '[') *json += ",";
  *json += item;
}

}  // namespace

void profile_launch(const Launch& launch) {
  KernelProfile& profile = kernels()[launch.kernel->name];
  current = &profile;
  profile.path = launch.kernel->module->libraries[1].path;
  profile.launches++;
  profile.threads = uint64_t(launch.block[0]) * launch.block[1] * launch.block[2];
  // A pointer argument is known by its buffer. Another buffer in a later launch is counted anew.
  std::string name;
  const char* names = launch.code->arguments;
  for (size_t i = 0; launch.code->signature[i]; ++i) {
    const char* end = strchrnul(names, ',');
    name.assign(names, end);
    names = *end ? end + 1 : end;
    if (launch.code->signature[i] != 'p') continue;
    const Buffer* buffer = find_buffer(*static_cast<void**>(launch.arguments[i]));
    if (!buffer) continue;
    auto known = std::find_if(profile.arguments.begin(), profile.arguments.end(),
                              [&](const Argument& a) { return a.name == name; });
    if (known == profile.arguments.end()) {
      known = profile.arguments.insert(known, Argument{});
      known->name = name;
    }
    known->begin = reinterpret_cast<uint64_t>(buffer->begin);
    known->size = buffer->size;
    known->seen.assign(buffer->size, 0);
  }
}

void profile_access(const char* address, unsigned bytes, int kind, Buffer* buffer, int line,
                    void* pc, unsigned thread) {
  // For accesses that no instrumentation reports, the line stands in for the place.
  void* place = line ? reinterpret_cast<void*>(uintptr_t(line)) : pc;
  block_log.push_back({reinterpret_cast<uint64_t>(address), place, line, 0, uint16_t(thread),
                       uint8_t(bytes), uint8_t(kind), buffer != nullptr});
}

void profile_barrier(int line) {
  current->barriers++;
  current->barrier_lines[line]++;
}

void profile_block_end(const Worker&) {
  current->blocks++;
  ++block_number;
  auto by_thread = [](const Logged& a, const Logged& b) {
    return std::tie(a.pc, a.thread) < std::tie(b.pc, b.thread);
  };
  std::stable_sort(block_log.begin(), block_log.end(), by_thread);
  for (size_t i = 1; i < block_log.size(); ++i) {
    Logged &one = block_log[i], &before = block_log[i - 1];
    one.occurrence = one.pc == before.pc && one.thread == before.thread ? before.occurrence + 1 : 0;
  }
  auto request = [](const Logged& a) { return std::make_tuple(a.pc, a.occurrence, a.thread / 32); };
  std::stable_sort(block_log.begin(), block_log.end(), [&](const Logged& a, const Logged& b) {
    return request(a) < request(b);
  });
  const Logged* end = block_log.data() + block_log.size();
  for (const Logged* first = block_log.data(); first != end;) {
    const Logged* last = first;
    Site& site = current->sites[first->pc];
    site = {first->line, first->global, first->kind, first->bytes,
            site.requests + 1, site.bytes, site.transactions, site.least};
    while (last != end && request(*last) == request(*first)) site.bytes += last++->bytes;
    if (first->global) {
      count_sectors(first, last, &site);
      count_argument(first, last);
    } else {
      count_wavefronts(first, last, &site);
    }
    first = last;
  }
  block_log.clear();
}

void reset_profile() {
  kernels().clear();
  block_log.clear();
}

std::string profile_json() {
  std::string json = "[";
  for (const auto& [name, kernel] : kernels()) {
    std::string sites = "[", arguments = "[", barriers = "[";
    for (const auto& [pc, site] : kernel.sites) {
      const int line = site.line ? site.line : source_line(pc);
      append(&sites, text("{\"line\":%d,\"global\":%s,\"write\":%s,\"width\":%u,\"requests\":%lu,"
                          "\"bytes\":%lu,\"transactions\":%lu,\"least\":%lu}",
                          line, site.global ? "true" : "false",
                          site.kind == kRead ? "false" : "true", site.width, site.requests,
                          site.bytes, site.transactions, site.least));
    }
    for (const Argument& a : kernel.arguments) {
      append(&arguments, text("{\"name\":\"%s\",\"size\":%lu,\"loaded\":%lu,\"distinct\":%lu,"
                              "\"distinct_in_blocks\":%lu,\"stored\":%lu}",
                              a.name.c_str(), a.size, a.loaded, a.distinct, a.distinct_in_blocks,
                              a.stored));
    }
    for (const auto& [line, count] : kernel.barrier_lines) {
      append(&barriers, text("[%d,%lu]", line, count));
    }
    append(&json, text("{\"name\":\"%s\",\"launches\":%lu,\"blocks\":%lu,\"threads\":%lu,"
                       "\"barriers\":%lu,\"barrier_lines\":",
                       name.c_str(), kernel.launches, kernel.blocks, kernel.threads,
                       kernel.barriers) +
                      barriers + "],\"sites\":" + sites + "],\"arguments\":" + arguments + "]}");
  }
  return json + "]";
}

}  // namespace emulator
