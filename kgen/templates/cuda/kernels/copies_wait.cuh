// Waits until all but `pending` groups of copies have arrived, where `pending` is a constant after unrolling, at most
// MOST.
template <int MOST>
__device__ __forceinline__ void copies_wait(const int pending) {
    if (pending == MOST) copy_wait<MOST>();
    else if constexpr (MOST > 0) copies_wait<MOST - 1>(pending);
}
