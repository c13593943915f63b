// The bits of a float, as an integer.
__attribute__((always_inline)) inline int32_t bits(float x) {
    int32_t found;
    __builtin_memcpy(&found, &x, sizeof found);
    return found;
}
