// Data races, exactly: two accesses to one byte, one of them a write, that nothing orders.
//
// What orders two accesses of a block is a barrier between them, or, within a warp, a
// __syncwarp(). Nothing orders accesses of two blocks of a launch. Each byte remembers its last
// write and a summary of the reads since; that is enough, as the first race ends the launch.
#include "runtime.h"

namespace emulator {

struct Now {
  uint32_t interval, thread, warp, warp_epoch;
};

// Do the touches that `before` sums up race with an access by `now`? In global memory also those
// of other blocks do.
static inline bool clashes(const Touch& before, const Now& now, bool global) {
  if (before.interval != now.interval) {
    if (!global || before.interval < worker->launch->first_interval) return false;
    return before.interval < worker->first_interval;  // another block of this launch
  }
  if (before.thread == now.thread) return false;
  if (before.thread == kSeveralWarps) return true;
  const uint32_t warp = before.thread & kOneWarp ? before.thread & 31 : before.thread >> 5;
  return warp != now.warp || before.warp_epoch == now.warp_epoch;
}

static std::string who(const Touch& before, const Now& now, const char* did) {
  if (before.interval != now.interval) return text("a thread of another block %s it", did);
  if (before.thread == kSeveralWarps) return text("several threads %s it", did);
  if (before.thread & kOneWarp) return text("several threads of warp %u %s it", before.thread & 31, did);
  const unsigned* size = worker->current()->block_size;
  const unsigned t = before.thread;
  return text("thread (%u,%u,%u) %s it", t % size[0], t / size[0] % size[1],
              t / (size[0] * size[1]), did);
}

// Adds a touch by `now` to a summary.
static inline void add(Touch* touch, const Now& now, bool atomic) {
  uint32_t thread = now.thread;
  if (touch->interval == now.interval && touch->thread != now.thread) {
    const bool several = touch->thread == kSeveralWarps;
    const uint32_t warp = touch->thread & kOneWarp ? touch->thread & 31 : touch->thread >> 5;
    if (several || warp != now.warp) {
      thread = kSeveralWarps;
    } else if (touch->warp_epoch == now.warp_epoch) {
      thread = kOneWarp | warp;
    }  // else a __syncwarp() lies between: for what follows, the later touch says all
  }
  touch->interval = now.interval;
  touch->thread = thread;
  touch->warp_epoch = now.warp_epoch;
  touch->atomic = atomic;
}

static inline bool same(const Touch& a, const Touch& b) {
  return __builtin_memcmp(&a, &b, sizeof(Touch)) == 0;
}

std::string find_race(Shadow* shadow, unsigned bytes, int kind, bool global) {
  const Fiber& fiber = *worker->current();
  const Now now{worker->interval, fiber.linear, fiber.warp, worker->warp_epochs[fiber.warp]};
  const char* does = kind == kRead ? "this read" : kind == kWrite ? "this write" : "this atomic";
  for (unsigned i = 0; i < bytes; ++i) {
    Shadow& byte = shadow[i];
    if (i && same(byte.written, shadow[0].written) && same(byte.read, shadow[0].read)) continue;
    if (byte.written.interval && !(kind == kAtomic && byte.written.atomic) &&
        clashes(byte.written, now, global)) {
      return who(byte.written, now, "wrote") + ", and nothing orders that and " + does;
    }
    if (kind != kRead && byte.read.interval && clashes(byte.read, now, global)) {
      return who(byte.read, now, "read") + ", and nothing orders that and " + does;
    }
  }
  for (unsigned i = 0; i < bytes; ++i) {
    if (kind == kRead) {
      add(&shadow[i].read, now, false);
    } else if (kind == kAtomic) {
      add(&shadow[i].written, now, true);
    } else {
      shadow[i].written = {now.interval, now.thread, now.warp_epoch, 0};
    }
  }
  return "";
}

}  // namespace emulator
