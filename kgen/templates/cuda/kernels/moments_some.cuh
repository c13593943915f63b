// Merges the values whose bit is set into moments: the mean and the squared deviations of these values come first.
template <int WIDTH>
__device__ __forceinline__ void moments_some(
    float& count, float& mean, float& squares, const float (&value)[WIDTH], const unsigned bits
) {
    float sum = 0.0f, square = 0.0f;
    #pragma unroll
    for (int j = 0; j < WIDTH; ++j) sum += bits >> j & 1 ? value[j] : 0.0f;
    const float some = static_cast<float>(__popc(bits));
    const float middle = some > 0.0f ? __fdividef(sum, some) : 0.0f;
    #pragma unroll
    for (int j = 0; j < WIDTH; ++j) square += bits >> j & 1 ? (value[j] - middle) * (value[j] - middle) : 0.0f;
    merge_moments(count, mean, squares, some, middle, square);
}
