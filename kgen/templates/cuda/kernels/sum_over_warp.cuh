// The sums over a warp's lanes of N numbers of each lane, N a power of 2 up to 32: lane l gets the sum of number l /
// (32 / N).
template <int N>
__device__ __forceinline__ float sum_over_warp(float* numbers) {
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int offset = 16; offset >= 1; offset /= 2) {
        const int left = N * offset / 32;
        if (left == 0) numbers[0] += __shfl_xor_sync(0xffffffffu, numbers[0], offset);
        #pragma unroll
        for (int i = 0; i < N / 2; ++i) {  // a lane sends one half of its numbers and keeps the other
            if (i >= left) continue;
            const bool upper = lane & offset;
            const float sent = upper ? numbers[i] : numbers[i + left], kept = upper ? numbers[i + left] : numbers[i];
            numbers[i] = kept + __shfl_xor_sync(0xffffffffu, sent, offset);
        }
    }
    return numbers[0];
}
