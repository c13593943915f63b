// The moments of column `at` of a block, from the moments of its LINES lines: the mean of the lines' means, then the
// squares about it.
template <int LINES, int WIDTH>
__device__ __forceinline__ void merge_lines(
    const float (&counts)[LINES], const float (&means)[LINES][WIDTH], const float (&line_squares)[LINES][WIDTH],
    const int at, float& merged, float& mean, float& squares
) {
    merged = mean = squares = 0.0f;
    #pragma unroll
    for (int line = 0; line < LINES; ++line) {
        merged += counts[line];
        mean += counts[line] > 0.0f ? counts[line] * (means[line][at] - means[0][at]) : 0.0f;
    }
    mean = merged > 0.0f ? means[0][at] + mean / merged : 0.0f;
    #pragma unroll
    for (int line = 0; line < LINES; ++line) {
        const float difference = counts[line] > 0.0f ? means[line][at] - mean : 0.0f;
        squares += fmaf(counts[line] * difference, difference, line_squares[line][at]);
    }
}
