// a / b, by the vector instruction.
__attribute__((always_inline)) inline float quotient(float a, float b) { return a / b; }
