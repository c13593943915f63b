// The products of R rows of a weight, K / 32 numbers of each in a lane, and `count` states in shared memory, B of them
// at a time. Lane l has four neighbouring numbers of every 128, from l * 4 on. The sum of row r and state b goes to
// products[r * S + b].
template <int R, int B, int K, int S>
__device__ __forceinline__ void multiply_states(
    const float* weights, const float* states, const int count, float* products
) {
    constexpr int N = R * B <= 1 ? 1 : R * B <= 2 ? 2 : R * B <= 4 ? 4 : R * B <= 8 ? 8 : R * B <= 16 ? 16 : 32;
    const int lane = threadIdx.x % 32;
    #pragma unroll 1
    for (int first = 0; first < count; first += B) {
        float sums[N] = {};
        #pragma unroll
        for (int part = 0; part < K / 128; ++part) {
            #pragma unroll
            for (int b = 0; b < B; ++b) {
                const float4 state = *reinterpret_cast<const float4*>(states + (first + b) * K + part * 128 + lane * 4);
                #pragma unroll
                for (int r = 0; r < R; ++r) {
                    const float* weight = weights + (r * K / 128 + part) * 4;
                    sums[r * B + b] = fmaf(weight[0], state.x, sums[r * B + b]);
                    sums[r * B + b] = fmaf(weight[1], state.y, sums[r * B + b]);
                    sums[r * B + b] = fmaf(weight[2], state.z, sums[r * B + b]);
                    sums[r * B + b] = fmaf(weight[3], state.w, sums[r * B + b]);
                }
            }
        }
        const float sum = sum_over_warp<N>(sums);
        const int own = lane / (32 / N), b = first + own % B;
        if (lane % (32 / N) == 0 && own < R * B && b < count) products[own / B * S + b] = sum;
    }
}
