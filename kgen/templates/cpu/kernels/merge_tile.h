// Takes a tile into a row's running maximum and sum of exponentials; a sum counts from its own maximum (0 if infinite).
static inline void merge_tile(float& max, float& sum, const float larger, const float* value, const int count) {
    const float shift = finite_max(larger);
    float part = 0.0f;
    #pragma omp simd reduction(+ : part)
    for (int i = 0; i < count; ++i) {
        part += vec::exp_below(value[i] - shift);
    }
    sum = sum * vec::exp_below(finite_max(max) - shift) + part;
    max = larger;
}
