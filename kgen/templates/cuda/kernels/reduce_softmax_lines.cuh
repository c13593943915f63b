// Running maxima and sums of the LINES threads of each of 32 neighbouring rows merged, and given to all of them.
template <int LINES, int SITE>
__device__ __forceinline__ void reduce_softmax_lines(float& max, float& sum) {
    __shared__ float2 partial[LINES][32];
    const int line = threadIdx.x / 32, place = threadIdx.x % 32;
    partial[line][place] = make_float2(max, sum);
    __syncthreads();
    #pragma unroll
    for (int width = LINES / 2; width > 0; width /= 2) {
        if (line < width) {
            const float2 other = partial[line + width][place];
            merge_softmax(max, sum, other.x, other.y);
            partial[line][place] = make_float2(max, sum);
        }
        __syncthreads();
    }
    max = partial[0][place].x;
    sum = partial[0][place].y;
}
