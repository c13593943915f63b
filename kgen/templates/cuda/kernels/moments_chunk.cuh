// Takes WIDTH values into moments: their own mean and squared deviations first, so that a large mean costs no accuracy.
template <int WIDTH>
__device__ __forceinline__ void moments_chunk(float& count, float& mean, float& squares, const float (&value)[WIDTH]) {
    float sum = 0.0f, square = 0.0f;
    #pragma unroll
    for (int j = 0; j < WIDTH; ++j) sum += value[j];
    const float middle = sum * (1.0f / WIDTH);
    #pragma unroll
    for (int j = 0; j < WIDTH; ++j) square = fmaf(value[j] - middle, value[j] - middle, square);
    const float total = count + WIDTH, delta = middle - mean, share = __fdividef(static_cast<float>(WIDTH), total);
    mean = fmaf(delta, share, mean);
    squares += fmaf(delta * delta, count * share, square);
    count = total;
}
