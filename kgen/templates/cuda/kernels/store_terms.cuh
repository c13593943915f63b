// Stores four pairs of float16 in memory at once, or one. The compiler would split a plain store of four.
template <int PAIRS>
__device__ __forceinline__ void store_term(__half* to, const __half2* pairs) {
    const uint32_t* const w = reinterpret_cast<const uint32_t*>(pairs);
    if constexpr (PAIRS == 4) {
        asm volatile(
            "st.global.v4.b32 [%0], {%1, %2, %3, %4};"
            ::"l"(to), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
            : "memory"
        );
    } else {
        *reinterpret_cast<__half2*>(to) = pairs[0];
    }
}

// Splits a thread's eight columns of a group, as load_group gives them, and stores the terms in rows of LD.
template <int COLS, int LD, int THREADS, int TERMS, bool ROUNDED = false>
__device__ __forceinline__ void store_terms(
    __half* high_row, __half* low_row, const int group, const int thread, const float (&v)[8], const int exponent
) {
    alignas(16) __half2 high[4], low[4];
    split_group<ROUNDED>(v, exponent, high, low);
    #pragma unroll
    for (int pair = 0; pair < 4; pair += TOGETHER<COLS>) {
        const int col = column_of<COLS, THREADS>(group, thread, pair);
        if (col >= LD) return;
        store_term<TOGETHER<COLS>>(high_row + col, &high[pair]);
        if constexpr (TERMS == 2) store_term<TOGETHER<COLS>>(low_row + col, &low[pair]);
    }
}
