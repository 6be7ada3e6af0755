// What the threads of a block and the lanes of a warp do together: barriers, shuffles, votes.
#pragma once

#define __syncthreads() emulator_barrier(__LINE__)
#define __syncthreads_and(P) emulator_barrier_vote(__LINE__, P, int(emulator::Vote::kAll))
#define __syncthreads_or(P) emulator_barrier_vote(__LINE__, P, int(emulator::Vote::kAny))
#define __syncthreads_count(P) emulator_barrier_vote(__LINE__, P, int(emulator::Vote::kCount))
#define __activemask() emulator_active_mask(__LINE__)
#define EMULATOR_LOCK_STEP emulator_lock_step(__LINE__);
#define __threadfence() ((void)0)
#define __threadfence_block() ((void)0)
#define __threadfence_system() ((void)0)
#define __nanosleep(N) ((void)(N))
#define __trap() emulator_fail(__LINE__, "the kernel called __trap()")

namespace emulator {

enum class Shuffle { kIndexed, kUp, kDown, kXor };
constexpr const char* kShuffleNames[] = {"__shfl_sync", "__shfl_up_sync", "__shfl_down_sync",
                                         "__shfl_xor_sync"};

// Reading a lane outside of the mask is undefined in CUDA. Where the runtime lets it pass, the
// value is all ones (NaN in floating point), so that a kernel that uses it goes wrong visibly.
template <Shuffle kKind, class T>
EMULATOR_HIDDEN T shuffle(int line, unsigned mask, T value, int argument, int width = 32) {
  static_assert(sizeof(T) <= 16, "a shuffle of a type of more than 16 bytes");
  const char* name = kShuffleNames[static_cast<int>(kKind)];
  T all[32];
  emulator_exchange(line, name, mask, &value, all, sizeof(T));
  int me = lane(), first = me & ~(width - 1), last = first + width - 1, from = me;
  switch (kKind) {
    case Shuffle::kIndexed: from = first + (argument & (width - 1)); break;
    case Shuffle::kUp: from = me - argument >= first ? me - argument : me; break;
    case Shuffle::kDown: from = me + argument <= last ? me + argument : me; break;
    case Shuffle::kXor: from = (me ^ argument) <= last ? me ^ argument : me; break;
  }
  if (!((mask >> from) & 1)) {
    emulator_foreign_lane(line, name, mask, from);
    memset(&all[from], 0xFF, sizeof(T));
  }
  return all[from];
}

EMULATOR_HIDDEN unsigned ballot(int line, const char* name, unsigned mask, bool predicate) {
  char mine = predicate, all[32];
  emulator_exchange(line, name, mask, &mine, all, 1);
  unsigned bits = 0;
  for (int i = 0; i < 32; ++i) bits |= ((mask >> i) & 1 && all[i]) ? 1u << i : 0u;
  return bits;
}

// All lanes meet, but no memory is ordered.
EMULATOR_HIDDEN void converge(int line, const char* name) {
  char mine = 0, all[32];
  emulator_exchange(line, name, ~0u, &mine, all, 1);
}

EMULATOR_INLINE void sync_warp(int line, unsigned mask = ~0u) {
  emulator_exchange(line, "__syncwarp", mask, nullptr, nullptr, 0);
}
template <class T>
EMULATOR_HIDDEN unsigned match_any(int line, unsigned mask, T value) {
  T all[32];
  emulator_exchange(line, "__match_any_sync", mask, &value, all, sizeof(T));
  unsigned bits = 0;
  for (int i = 0; i < 32; ++i) {
    if ((mask >> i) & 1 && !memcmp(&all[i], &value, sizeof(T))) bits |= 1u << i;
  }
  return bits;
}
enum class Reduce { kAdd, kMin, kMax, kAnd, kOr, kXor };
template <Reduce kKind, class T>
EMULATOR_HIDDEN T reduce(int line, unsigned mask, T value) {
  T all[32], result = value;
  emulator_exchange(line, "__reduce_sync", mask, &value, all, sizeof(T));
  for (int i = 0; i < 32; ++i) {
    if (!((mask >> i) & 1) || i == lane()) continue;
    switch (kKind) {
      case Reduce::kAdd: result = T(result + all[i]); break;
      case Reduce::kMin: result = all[i] < result ? all[i] : result; break;
      case Reduce::kMax: result = all[i] > result ? all[i] : result; break;
      case Reduce::kAnd: result = T(result & all[i]); break;
      case Reduce::kOr: result = T(result | all[i]); break;
      case Reduce::kXor: result = T(result ^ all[i]); break;
    }
  }
  return result;
}

}  // namespace emulator

#define __syncwarp(...) emulator::sync_warp(__LINE__, ##__VA_ARGS__)
#define __shfl_sync(...) emulator::shuffle<emulator::Shuffle::kIndexed>(__LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) emulator::shuffle<emulator::Shuffle::kUp>(__LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) emulator::shuffle<emulator::Shuffle::kDown>(__LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) emulator::shuffle<emulator::Shuffle::kXor>(__LINE__, __VA_ARGS__)
#define __ballot_sync(M, P) emulator::ballot(__LINE__, "__ballot_sync", M, (P) != 0)
#define __any_sync(M, P) (emulator::ballot(__LINE__, "__any_sync", M, (P) != 0) != 0)
#define __all_sync(M, P) (emulator::ballot(__LINE__, "__all_sync", M, (P) == 0) == 0)
#define __match_any_sync(M, V) emulator::match_any(__LINE__, M, V)
#define __reduce_add_sync(M, V) emulator::reduce<emulator::Reduce::kAdd>(__LINE__, M, V)
#define __reduce_min_sync(M, V) emulator::reduce<emulator::Reduce::kMin>(__LINE__, M, V)
#define __reduce_max_sync(M, V) emulator::reduce<emulator::Reduce::kMax>(__LINE__, M, V)
#define __reduce_and_sync(M, V) emulator::reduce<emulator::Reduce::kAnd>(__LINE__, M, V)
#define __reduce_or_sync(M, V) emulator::reduce<emulator::Reduce::kOr>(__LINE__, M, V)
#define __reduce_xor_sync(M, V) emulator::reduce<emulator::Reduce::kXor>(__LINE__, M, V)
