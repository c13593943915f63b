// Launches a kernel that may start while the one before it in the stream ends (programmatic dependent launch, sm_90): it
// must wait_for_previous() before it touches memory.
template <typename... Parameters, typename... Arguments>
static void launch_early(void (*kernel)(Parameters...), const dim3 grid, const int threads, const cudaStream_t stream, Arguments... arguments) {
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}
