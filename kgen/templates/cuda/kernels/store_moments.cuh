// Merges moments with those of the lane that differs in this bit, for one half of the columns that both have: each keeps one half
// in its first LEFT places and gives the other away. Both have rows of their own, `count` of them.
template <int LEFT, int COLUMNS>
__device__ __forceinline__ void merge_halves(float (&mean)[COLUMNS], float (&squares)[COLUMNS], float& count, const int bit) {
    const bool upper = threadIdx.x & bit;
    const float other = __shfl_xor_sync(0xffffffffu, count, bit);
    const float total = count + other;
    const float share = total > 0.0f ? other / total : 0.0f;
    #pragma unroll
    for (int i = 0; i < LEFT; ++i) {
        const float taken = __shfl_xor_sync(0xffffffffu, upper ? mean[i] : mean[LEFT + i], bit);
        const float taken_squares = __shfl_xor_sync(0xffffffffu, upper ? squares[i] : squares[LEFT + i], bit);
        const float kept = upper ? mean[LEFT + i] : mean[i];
        const float kept_squares = upper ? squares[LEFT + i] : squares[i];
        const float difference = taken - kept;
        mean[i] = fmaf(difference, share, kept);
        squares[i] = fmaf(difference * (count * share), difference, kept_squares + taken_squares);
    }
    count = total;
}

// Leaves the moments of a strip of 16 rows, of which the first `rows` count: of each column its mean and the sum of squared
// deviations from that, in to[col]; a row of it has room for an even number of columns. Lane l has rows l / 4 and l / 4 + 8 of
// columns begin + 8 (i / 2) + i % 2; three exchanges among the eight lanes of a column leave each of them with the whole
// strip's moments of an eighth of the columns.
template <int COLUMNS, int N>
__device__ __forceinline__ void store_moments(
    const float (&values)[2][COLUMNS], const long long rows, float2* to, const int begin
) {
    static_assert(COLUMNS % 8 == 0, "a lane is left with an eighth of them");
    const int eighth = threadIdx.x % 32 / 4;
    const bool two = eighth + 8 < rows;
    float count = two ? 2.0f : eighth < rows ? 1.0f : 0.0f;
    float mean[COLUMNS], squares[COLUMNS];
    #pragma unroll
    for (int i = 0; i < COLUMNS; ++i) {
        const float difference = two ? values[1][i] - values[0][i] : 0.0f;
        mean[i] = fmaf(0.5f, difference, values[0][i]);
        squares[i] = 0.5f * difference * difference;
    }
    merge_halves<COLUMNS / 2>(mean, squares, count, 16);
    merge_halves<COLUMNS / 4>(mean, squares, count, 8);
    merge_halves<COLUMNS / 8>(mean, squares, count, 4);
    if (rows <= 0) return;
    constexpr int KEPT = COLUMNS / 8, AT_ONCE = KEPT > 1 ? 2 : 1;
    #pragma unroll
    for (int i = 0; i < KEPT; i += AT_ONCE) {
        const int at = eighth * KEPT + i, col = begin + at / 2 * 8 + at % 2;
        if (col >= N) continue;
        if (AT_ONCE == 2) *reinterpret_cast<float4*>(to + col) = make_float4(mean[i], squares[i], mean[i + 1], squares[i + 1]);
        else to[col] = make_float2(mean[i], squares[i]);
    }
}
