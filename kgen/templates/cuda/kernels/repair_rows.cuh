// The products of rows of x and w that hold a NaN or an infinity, in plain float32, into y [rows, N]. Each `group` rows of x
// have a matrix of w; element i of a matrix's row n lies at n * ALONG_N + i * ALONG_K. With TURNED, the rows of x are columns in
// memory. Exponents begin at multiples of 16 bytes.
// Where all are numbers, every block sees that and ends.
template <int N, int K, int ALONG_N, int ALONG_K, bool TURNED>
__global__ void __launch_bounds__(256) repair_kernel(
    const float* x, const int* x_exponents, const float* w, const int* w_exponents, float* y, const long long rows,
    const long long group
) {
    start_next();
    wait_for_previous();
    const long long w_rows = rows / group * N;
    bool found = false;
    const auto look = [&](const int* exponents, const long long count) {
        const int4* four = reinterpret_cast<const int4*>(exponents);
        #pragma unroll 4
        for (long long i = threadIdx.x; i < count / 4; i += 256) {
            const int4 e = four[i];
            found |= min(min(e.x, e.y), min(e.z, e.w)) == NOT_FINITE;
        }
        if (threadIdx.x < count % 4) found |= exponents[count / 4 * 4 + threadIdx.x] == NOT_FINITE;
    };
    look(x_exponents, rows);
    look(w_exponents, w_rows);
    if (!__syncthreads_or(found)) return;

    const int lane = threadIdx.x % 32;
    const long long warp = blockIdx.x * 8ll + threadIdx.x / 32, warps = gridDim.x * 8ll;
    const auto multiply = [&](const long long row, const long long col) {
        const float* const matrix = w + row / group * N * K;
        const float* const of_x = TURNED ? x + row / group * group * K + row % group : x + row * K;
        const float sum = warp_dot<K, ALONG_K>(of_x, TURNED ? group : 1, matrix + col * ALONG_N);
        if (lane == 0) y[row * N + col] = sum;
    };
    for (long long row = 0; row < rows; ++row) {
        if (x_exponents[row] != NOT_FINITE) continue;
        for (long long col = warp; col < N; col += warps) multiply(row, col);
    }
    for (long long w_row = 0; w_row < w_rows; ++w_row) {
        if (w_exponents[w_row] != NOT_FINITE) continue;
        const long long first = w_row / N * group;
        for (long long row = first + warp; row < first + group; row += warps) multiply(row, w_row % N);
    }
}

template <int N, int K, int ALONG_N, int ALONG_K, bool TURNED>
static void repair_rows(
    const float* x, const int* x_exponents, const float* w, const int* w_exponents, float* y, const long long rows,
    const long long group, const cudaStream_t stream
) {
    const auto kernel = repair_kernel<N, K, ALONG_N, ALONG_K, TURNED>;
    launch_early(kernel, {dim3(264), 256}, stream, x, x_exponents, w, w_exponents, y, rows, group);
}
