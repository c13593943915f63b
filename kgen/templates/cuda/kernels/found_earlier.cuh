// What the pairs that begin one row earlier found of row r of a thread: the next lane has every second row.
template <int ROWS, typename T>
__device__ __forceinline__ T found_earlier(const T (&found)[2 * ROWS], const int r) {
    if (r % 2 == 0) return found[ROWS + r + 1];
    const T next = __shfl_down_sync(0xffffffff, found[ROWS + r - 1], 1);
    if (r + 1 == ROWS) return next;  // the last row of the last lane is another block's
    const T first = __shfl_sync(0xffffffff, found[ROWS + r + 1], 0);
    return threadIdx.x % 32 == 31 ? first : next;
}
