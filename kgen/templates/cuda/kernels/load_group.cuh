// A thread has four pairs of the columns of each group of 8 THREADS. So many of them lie side by side: all, for loads
// of 16 bytes, or one where rows of COLS do not begin at multiples of that, so that neighbours load neighbours.
template <int COLS>
constexpr int TOGETHER = COLS % 4 == 0 ? 4 : 1;

// The first column of one of these pairs.
template <int COLS, int THREADS>
__device__ __forceinline__ int column_of(const int group, const int thread, const int pair) {
    return TOGETHER<COLS> == 4
        ? (group * THREADS + thread) * 8 + pair * 2
        : ((group * 4 + pair) * THREADS + thread) * 2;
}

// These eight columns of a row of COLS, zeros beyond its end.
template <int COLS, int THREADS>
__device__ __forceinline__ void load_group(
    float (&v)[8], const float* __restrict__ row, const int group, const int thread
) {
    const int col = column_of<COLS, THREADS>(group, thread, 0);
    if (TOGETHER<COLS> == 4 && col + 8 <= COLS) {
        const float4 low = __ldcs(reinterpret_cast<const float4*>(row + col));
        const float4 high = __ldcs(reinterpret_cast<const float4*>(row + col + 4));
        v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
        v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
    } else {
        #pragma unroll
        for (int pair = 0; pair < 4; ++pair) {
            const int at = column_of<COLS, THREADS>(group, thread, pair);
            v[2 * pair] = at < COLS ? row[at] : 0.0f;
            v[2 * pair + 1] = at + 1 < COLS ? row[at + 1] : 0.0f;
        }
    }
}
