// Powers of two that even out the rows of w [K, N] before x . w: at k, 2^h near the square root of the row's largest
// magnitude, which columns of x are multiplied by; at LD + k, 2^-h, which the row is multiplied by. A block takes a
// row.
template <int N, int LD>
__global__ void __launch_bounds__(256) balance_kernel(const float* w, float* powers) {
    start_next();
    wait_for_previous();
    float v[8];
    float of_thread = 0.0f;
    #pragma unroll 4
    for (int group = 0; group * 8 * 256 < N; ++group) {
        load_group<N, 256>(v, w + static_cast<long long>(blockIdx.x) * N, group, threadIdx.x);
        #pragma unroll
        for (int j = 0; j < 8; ++j) of_thread = larger_magnitude(of_thread, v[j]);
    }
    const float largest = __uint_as_float(block_largest<256>(__float_as_uint(of_thread)));
    if (threadIdx.x > 0) return;
    const int half = largest <= FLT_MAX ? max(-30, min(30, ilogbf(largest) / 2)) : 0;
    powers[blockIdx.x] = power_of_two(half);
    powers[LD + blockIdx.x] = power_of_two(-half);
}

template <int K, int N, int LD>
static void balance_rows(const float* w, float* powers, const cudaStream_t stream) {
    launch_early(balance_kernel<N, LD>, {dim3(K), 256}, stream, w, powers);
}
