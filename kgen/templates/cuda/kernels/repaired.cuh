// A sum of products of split terms, which is no number where one of the terms is an infinity: then the same of COLS
// numbers in float32.
template <int COLS>
__device__ float repaired(const float sum, const float* weight, const float* state) {
    if (sum == sum || state == nullptr) return sum;
    float found = 0.0f;
    for (int at = 0; at < COLS; ++at) found = fmaf(weight[at], state[at], found);
    return found;
}
