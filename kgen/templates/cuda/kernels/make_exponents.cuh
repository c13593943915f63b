// Makes exponents of the bits of the largest magnitudes of rows, in their place.
template <int THREADS>
__global__ void __launch_bounds__(THREADS) exponents_kernel(int* exponents, const long long rows) {
    start_next();
    wait_for_previous();
    const long long row = blockIdx.x * static_cast<long long>(THREADS) + threadIdx.x;
    if (row < rows) exponents[row] = row_exponent(static_cast<unsigned>(exponents[row]));
}

static void make_exponents(int* exponents, const long long rows, const cudaStream_t stream) {
    launch_early(
        exponents_kernel<256>, {dim3(static_cast<unsigned>((rows + 255) / 256)), 256}, stream, exponents, rows
    );
}
