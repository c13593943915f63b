// Makes e^(x - base) of a row of `count` elements, a multiple of W, and returns their sum.
template <int W>
__attribute__((always_inline)) inline float soften(float* row, const int count, const float base) {
    float part[W] = {}, sum = 0.0f;
    for (int begin = 0; begin < count; begin += W) {
        #pragma omp simd
        for (int i = 0; i < W; ++i) {
            row[begin + i] = vec::exp_below(row[begin + i] - base);
            part[i] += row[begin + i];
        }
    }
    for (int i = 0; i < W; ++i) sum += part[i];
    return sum;
}
