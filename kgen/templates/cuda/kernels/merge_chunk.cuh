// Takes WIDTH values into a running maximum and sum of exponentials: one rescaling for all of them.
template <int WIDTH>
__device__ __forceinline__ void merge_chunk(float& max, float& sum, const float (&value)[WIDTH]) {
    float larger = max;
    #pragma unroll
    for (int j = 0; j < WIDTH; ++j) larger = fmaxf(larger, value[j]);
    const float shift = finite_max(larger);
    sum *= expf(finite_max(max) - shift);
    #pragma unroll
    for (int j = 0; j < WIDTH; ++j) sum += expf(value[j] - shift);
    max = larger;
}
