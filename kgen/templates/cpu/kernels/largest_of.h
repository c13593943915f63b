// The largest of `count` elements; a NaN counts for nothing.
template <int W>
__attribute__((always_inline)) inline float largest_of(const float* row, const int count) {
    float part[W], largest = -INFINITY;
    for (int i = 0; i < W; ++i) part[i] = -INFINITY;
    int begin = 0;
    for (; begin + W <= count; begin += W) {
        #pragma omp simd
        for (int i = 0; i < W; ++i) part[i] = row[begin + i] > part[i] ? row[begin + i] : part[i];
    }
    for (; begin < count; ++begin) largest = row[begin] > largest ? row[begin] : largest;
    #pragma omp simd reduction(max : largest)
    for (int i = 0; i < W; ++i) largest = part[i] > largest ? part[i] : largest;
    return largest;
}
