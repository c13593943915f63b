// Splits a thread's eight columns of a group, as load_group gives them, and stores the terms in rows of LD.
template <int COLS, int LD, int THREADS, int TERMS>
__device__ __forceinline__ void store_terms(
    __half* high_row, __half* low_row, const int group, const int thread, const float (&v)[8], const int exponent
) {
    alignas(16) __half2 high[4], low[4];
    split_group(v, exponent, high, low);
    #pragma unroll
    for (int pair = 0; pair < 4; pair += TOGETHER<COLS>) {
        const int col = column_of<COLS, THREADS>(group, thread, pair);
        if (col >= LD) return;
        store_pairs<TOGETHER<COLS>>(high_row + col, &high[pair]);
        if constexpr (TERMS == 2) store_pairs<TOGETHER<COLS>>(low_row + col, &low[pair]);
    }
}
