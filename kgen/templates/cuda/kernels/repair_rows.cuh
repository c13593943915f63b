// The products of rows of x and w that hold a NaN or an infinity, in plain float32, into y [rows, N]. Each `group` rows
// of x have a matrix of w; element i of a matrix's row n lies at n * ALONG_N + i * ALONG_K. With TURNED, the rows of x
// are columns in memory. Four blocks share a row, and rows take turns: a block whose own are numbers sees that and
// ends.
template <int N, int K, int ALONG_N, int ALONG_K, bool TURNED>
__global__ void __launch_bounds__(256) repair_kernel(
    const float* x, const int* x_exponents, const float* w, const int* w_exponents, float* y, const long long rows,
    const long long group
) {
    start_next();
    wait_for_previous();
    const long long w_rows = rows / group * N;
    constexpr int PARTS = 4;  // of a row
    bool found = false;
    const auto look = [&](const int* exponents, const long long count) {
        #pragma unroll 8
        for (
            long long i = blockIdx.x + gridDim.x * static_cast<long long>(threadIdx.x); i < PARTS * count;
            i += gridDim.x * 256ll
        ) {
            found |= exponents[i / PARTS] == NOT_FINITE;
        }
    };
    look(x_exponents, rows);
    look(w_exponents, w_rows);
    if (!__syncthreads_or(found)) return;

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const auto multiply = [&](const long long row, const long long col) {
        const float* const matrix = w + row / group * N * K;
        const float* const of_x = TURNED ? x + row / group * group * K + row % group : x + row * K;
        const float sum = warp_dot<K, ALONG_K>(of_x, TURNED ? group : 1, matrix + col * ALONG_N);
        if (lane == 0) y[row * N + col] = sum;
    };
    for (long long i = blockIdx.x; i < PARTS * rows; i += gridDim.x) {
        if (x_exponents[i / PARTS] != NOT_FINITE) continue;
        for (long long col = i % PARTS * 8 + warp; col < N; col += PARTS * 8) multiply(i / PARTS, col);
    }
    for (long long i = blockIdx.x; i < PARTS * w_rows; i += gridDim.x) {
        const long long w_row = i / PARTS, first = w_row / N * group;
        if (w_exponents[w_row] != NOT_FINITE) continue;
        for (long long row = first + i % PARTS * 8 + warp; row < first + group; row += PARTS * 8) {
            multiply(row, w_row % N);
        }
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
