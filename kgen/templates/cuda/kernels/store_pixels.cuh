// Stores neighbouring floats by one instruction, where the compiler would split the one of store_vector(), which brings the type.
__device__ __forceinline__ void store_pixels(float* to, const Vector<float, 4>& value) {
    const float* const v = value.v;
    asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]) : "memory");
}
