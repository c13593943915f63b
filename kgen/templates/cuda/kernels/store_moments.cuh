// Merges moments with the lane whose number differs in this bit. Both lanes have the same columns, and `count` rows of
// their own. Each lane keeps one half of the columns in its first LEFT places, and gives the other half away.
template <int LEFT, int COLUMNS>
__device__ __forceinline__ void merge_halves(
    float (&mean)[COLUMNS], float (&squares)[COLUMNS], float& count, const int bit
) {
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

// Leaves the moments of a strip of 16 rows, of which the first `rows` count: of each column its mean and the sum of
// squared deviations from that, in to[col]; a row of it has room for an even number of columns. A lane has the values
// of its rows of the strip, in chunks of columns from `begin` on. Exchanges among the lanes of a column leave each of
// them with the whole strip's moments of its share of the columns.
template <typename Lanes, int N, int COLUMNS>
__device__ __forceinline__ void store_moments(
    const float (&values)[Lanes::ROWS][COLUMNS], const long long rows, float2* to, const int begin
) {
    constexpr int SHARES = 32 / Lanes::LANES, KEPT = COLUMNS / SHARES, AT_ONCE = KEPT > 1 ? 2 : 1;
    static_assert(COLUMNS % SHARES == 0, "a lane is left with a share of them");
    const int share = threadIdx.x % 32 / Lanes::LANES;
    float count = 0.0f;
    float mean[COLUMNS], squares[COLUMNS];
    #pragma unroll
    for (int i = 0; i < COLUMNS; ++i) mean[i] = values[0][i], squares[i] = 0.0f;
    #pragma unroll
    for (int row = 0; row < Lanes::ROWS; ++row) {
        if (Lanes::first_row() + Lanes::behind(row) >= rows) continue;
        count += 1.0f;
        #pragma unroll
        for (int i = 0; i < COLUMNS; ++i) {
            const float difference = values[row][i] - mean[i];
            mean[i] = fmaf(1.0f / (row + 1), difference, mean[i]);
            squares[i] = fmaf(difference * (static_cast<float>(row) / (row + 1)), difference, squares[i]);
        }
    }
    merge_halves<COLUMNS / 2>(mean, squares, count, 16);
    merge_halves<COLUMNS / 4>(mean, squares, count, 8);
    if constexpr (SHARES == 8) merge_halves<COLUMNS / 8>(mean, squares, count, 4);
    if (rows <= 0) return;
    #pragma unroll
    for (int i = 0; i < KEPT; i += AT_ONCE) {
        const int at = share * KEPT + i, col = begin + at / Lanes::WIDTH * Lanes::COLS + at % Lanes::WIDTH;
        if (col >= N) continue;
        if (AT_ONCE == 2) {
            *reinterpret_cast<float4*>(to + col) = make_float4(mean[i], squares[i], mean[i + 1], squares[i + 1]);
        } else {
            to[col] = make_float2(mean[i], squares[i]);
        }
    }
}
