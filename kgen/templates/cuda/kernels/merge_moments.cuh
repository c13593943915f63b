// Merges the mean and the sum of squared deviations of other_count values into the moments of count values (Chan et al.
// 1979).
template <typename Float>
__device__ __forceinline__ void merge_moments(
    Float& count, Float& mean, Float& squares, const Float other_count, const Float other_mean,
    const Float other_squares
) {
    const Float total = count + other_count;
    if (total == Float(0)) return;
    const Float delta = other_mean - mean;
    const Float share = other_count / total;
    mean += delta * share;
    squares += other_squares + delta * delta * count * share;
    count = total;
}
