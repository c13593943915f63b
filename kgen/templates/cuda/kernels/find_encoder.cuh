// The driver's cuTensorMapEncodeTiled, found at run time so that nothing links against the driver.
static decltype(&cuTensorMapEncodeTiled) find_encoder() {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult status;
#if CUDART_VERSION >= 12050
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &status);
#else
    cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &status);
#endif
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}
