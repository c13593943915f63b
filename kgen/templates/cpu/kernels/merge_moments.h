// Merges means and sums of squared deviations of other_count rows into the moments of count rows (Chan et al. 1979).
static inline void merge_moments(
    float& count, float* __restrict__ mean, float* __restrict__ squares,
    const float other_count, const float* other_mean, const float* other_squares, const int width
) {
    const float total = count + other_count;
    const float share = other_count / total, weight = count * share;
    #pragma omp simd
    for (int i = 0; i < width; ++i) {
        const float delta = other_mean[i] - mean[i];
        mean[i] += delta * share;
        squares[i] += other_squares[i] + delta * delta * weight;
    }
    count = total;
}
