// Takes a running maximum and sum of exponentials into another; a sum counts from its own maximum (0 if that is
// infinite).
__device__ __forceinline__ void merge_softmax(float& max, float& sum, float other_max, float other_sum) {
    const float larger = fmaxf(max, other_max);
    const float shift = finite_max(larger);
    sum = sum * expf(finite_max(max) - shift) + other_sum * expf(finite_max(other_max) - shift);
    max = larger;
}
