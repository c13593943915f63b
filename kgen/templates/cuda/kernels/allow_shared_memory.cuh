template <auto kernel, int bytes>
static int ask_for_shared_memory(int) {
    const int error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    return error ? -error : 1;
}

// Allows blocks of a kernel `bytes` of shared memory on the current device. Returns a CUDA error.
template <auto kernel, int bytes>
static int allow_shared_memory() {
    const int answer = asked_once<ask_for_shared_memory<kernel, bytes>>();
    return answer > 0 ? 0 : -answer;
}
