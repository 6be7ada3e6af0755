// Device buffers and shared memory: filled with all ones (NaN), with guards around them.
//
// A device buffer ends at a megabyte without access, so that even a kernel without instrumentation cannot run
// far past its end: at most up to the next multiple of 16 bytes, which a canary watches.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "runtime.h"

namespace emulator {

static constexpr size_t kPage = 4096, kAlign = 256;
static constexpr size_t kGuard = 1 << 20;  // address space only
static constexpr int kPoison = 0xFF, kCanary = 0xA5;

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

static char* map_pages(size_t bytes) {
  void* map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return map == MAP_FAILED ? nullptr : static_cast<char*>(map);
}

static std::map<uintptr_t, Buffer>& buffers() {
  static auto* all = new std::map<uintptr_t, Buffer>;  // never destroyed: TVM frees at exit
  return *all;
}

Buffer* find_buffer(const void* address) {
  // By the end of its pages, so that the guard in front of a buffer belongs to it as well.
  auto found = buffers().upper_bound(reinterpret_cast<uintptr_t>(address));
  if (found == buffers().end() || address < found->second.map) return nullptr;
  return &found->second;
}

Buffer* allocate(size_t bytes) {
  // TVM asks for 64-byte alignment at most; the end is as near to the guard page as that allows
  // for sizes that are multiples of 16 bytes and more.
  const size_t room = round_up(std::max<size_t>(bytes, 1), 16);
  const size_t pages = round_up(room, kPage), total = pages + 2 * kGuard;
  char* map = map_pages(total);
  if (!map) return nullptr;
  mprotect(map, kGuard, PROT_NONE);
  mprotect(map + kGuard + pages, kGuard, PROT_NONE);
  char* begin = map + kGuard + pages - room;
  memset(map + kGuard, kPoison, pages);
  memset(begin + bytes, kCanary, room - bytes);
  Buffer& buffer = buffers()[reinterpret_cast<uintptr_t>(map) + total];
  buffer = Buffer{begin, bytes, map, total};
  return &buffer;
}

bool release(void* begin) {
  Buffer* buffer = find_buffer(begin);
  if (!buffer || buffer->begin != begin) return false;
  if (buffer->shadow) munmap(buffer->shadow, buffer->size * sizeof(Shadow));
  const uintptr_t key = reinterpret_cast<uintptr_t>(buffer->map) + buffer->map_size;
  munmap(buffer->map, buffer->map_size);
  buffers().erase(key);
  return true;
}

std::string damaged_canary() {
  for (auto& [end, buffer] : buffers()) {
    char* stop = buffer.map + buffer.map_size - kGuard;
    for (char* at = buffer.begin + buffer.size; at < stop; ++at) {
      if (static_cast<unsigned char>(*at) == kCanary) continue;
      memset(buffer.begin + buffer.size, kCanary, stop - buffer.begin - buffer.size);
      return text("out of bounds: a write past the end of a %zu-byte buffer (check mode says where)",
                  buffer.size);
    }
  }
  return "";
}

void SharedMemory::resize(size_t bytes) {
  if (bytes == size && (map_ || !bytes)) return;
  if (map_) munmap(map_, map_size_);
  map_ = begin = nullptr;
  map_size_ = 0;
  size = bytes;
  shadow.assign(bytes, Shadow{});
  if (!bytes) return;
  const size_t pages = round_up(bytes, kPage);
  map_size_ = pages + 2 * kGuard;
  map_ = map_pages(map_size_);
  mprotect(map_, kGuard, PROT_NONE);
  mprotect(map_ + kGuard + pages, kGuard, PROT_NONE);
  begin = map_ + kGuard + (pages - bytes) / kAlign * kAlign;
}

void SharedMemory::poison() {
  if (size) memset(begin, kPoison, size);
}

}  // namespace emulator
