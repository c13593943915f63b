// One block of 256 threads for each row: exact GELU, then softmax with the maximum subtracted, written if asked to.
__global__ void gelu_softmax_kernel(float* x, long columns, bool write) {
    float* row = x + blockIdx.x * columns;
    float largest = -INFINITY;
    for (long c = threadIdx.x; c < columns; c += 256) {
        float v = 0.5f * row[c] * (1.0f + erff(row[c] * 0.70710678f));
        if (!(v <= largest)) largest = v;
    }
    largest = reduce(largest, true);
    float sum = 0.0f;
    for (long c = threadIdx.x; c < columns; c += 256)
        sum += expf(0.5f * row[c] * (1.0f + erff(row[c] * 0.70710678f)) - largest);
    sum = reduce(sum, false);
    if (write)
        for (long c = threadIdx.x; c < columns; c += 256)
            row[c] = expf(0.5f * row[c] * (1.0f + erff(row[c] * 0.70710678f)) - largest) / sum;
}
