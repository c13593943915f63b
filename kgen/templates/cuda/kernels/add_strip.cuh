// Adds to a strip of 16 rows and 8 GROUPS columns of sums, as the tensor cores leave them, what lies in rows of N
// columns and an even LD.
template <int GROUPS, int N, int LD>
__device__ __forceinline__ void add_strip(
    float (&sums)[4 * GROUPS], const float* __restrict__ from, const long long rows, const long long first_row,
    const int first_col
) {
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int half = 0; half < 2; ++half) {
        const long long row = first_row + lane / 4 + 8 * half;
        if (row >= rows) continue;
        #pragma unroll
        for (int group = 0; group < GROUPS; ++group) {
            const int col = first_col + 8 * group + lane % 4 * 2;
            if (col >= N) continue;
            const float* const at = from + row * LD + col;
            const bool alone = N % 2 && col == N - 1;
            const float2 pair = alone ? make_float2(*at, 0.0f) : *reinterpret_cast<const float2*>(at);
            sums[4 * group + 2 * half] += pair.x, sums[4 * group + 2 * half + 1] += pair.y;
        }
    }
}
