// Stores neighbouring pixels by one instruction, where the compiler would split the one of store_vector(), which brings
// the type.
template <int WIDTH, typename T>
__device__ __forceinline__ void store_pixels(T* to, const Vector<T, WIDTH>& value) {
    const uint32_t* const w = reinterpret_cast<const uint32_t*>(value.v);
    if constexpr (sizeof(value) == 16) {
        asm volatile(
            "st.global.v4.b32 [%0], {%1, %2, %3, %4};"
            ::"l"(to), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
            : "memory"
        );
    } else if constexpr (sizeof(value) == 8) {
        asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(w[0]), "r"(w[1]) : "memory");
    } else {
        store_vector<WIDTH>(to, value);
    }
}
