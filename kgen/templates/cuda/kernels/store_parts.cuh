// Splits a thread's eight columns of a group, as load_group gives them, and stores the parts in rows of PITCH.
template <int COLS, int PITCH, int THREADS, int PARTS>
__device__ __forceinline__ void store_parts(
    __half* high_row, __half* low_row, const int group, const int thread, const float (&v)[8], const int exponent
) {
    alignas(16) __half2 high[4], low[4];
    split_group(v, exponent, high, low);
    #pragma unroll
    for (int pair = 0; pair < 4; pair += TOGETHER<COLS>) {
        const int col = column_of<COLS, THREADS>(group, thread, pair);
        if (col >= PITCH) return;
        store_pairs<TOGETHER<COLS>>(high_row + col, &high[pair]);
        if constexpr (PARTS == 2) store_pairs<TOGETHER<COLS>>(low_row + col, &low[pair]);
    }
}
