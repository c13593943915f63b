// A sum of products of float16 terms, which is not finite where a term is an infinity: then the same of COLS numbers in
// float32. Other blocks may still be writing them where it `waits`; see publish().
template <int COLS>
__device__ float repaired(const float sum, const float* weight, const float* state, const bool waits) {
    if (fabsf(sum) < INFINITY || state == nullptr) return sum;
    float found = 0.0f;
    for (int at = 0; at < COLS; at += 4) {
        float4 of = peek(state + at);
        while (waits && !is_published(of)) of = peek(state + at);
        found = fmaf(weight[at], of.x, found);
        found = fmaf(weight[at + 1], of.y, found);
        found = fmaf(weight[at + 2], of.z, found);
        found = fmaf(weight[at + 3], of.w, found);
    }
    return found;
}
