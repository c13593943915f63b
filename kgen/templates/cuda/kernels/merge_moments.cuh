// Takes the mean and the sum of squared deviations of other_count values into those of count values (Chan et al. 1979).
__device__ __forceinline__ void merge_moments(
    float& count, float& mean, float& squares, float other_count, float other_mean, float other_squares
) {
    const float total = count + other_count;
    if (total == 0.0f) return;
    const float delta = other_mean - mean;
    const float share = other_count / total;
    mean += delta * share;
    squares += other_squares + delta * delta * count * share;
    count = total;
}
