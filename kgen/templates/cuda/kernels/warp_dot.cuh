// The sum of the products of COUNT elements of a and of b, which are along_a and ALONG_B apart, in plain float32; every
// lane of the warp has it.
template <int COUNT, int ALONG_B>
__device__ __forceinline__ float warp_dot(const float* a, const long long along_a, const float* b) {
    float sum = 0.0f;
    for (int i = threadIdx.x % 32; i < COUNT; i += 32) {
        sum = fmaf(a[i * along_a], b[static_cast<long long>(i) * ALONG_B], sum);
    }
    #pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    return sum;
}
