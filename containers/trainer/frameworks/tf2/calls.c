/* A TensorFlow operation that calls a C function, which is given by its address: a tf.numpy_function without Python,
   which took a third of the convolutions' time. calls.py has this file compiled.

   It needs nothing but TensorFlow's C API, whose functions are declared here, because not every image has its headers:
   https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/c/kernels.h and ops.h. */
#include <stdint.h>
#include <stdlib.h>

typedef struct TF_Status TF_Status;
typedef struct TF_Tensor TF_Tensor;
typedef struct TF_OpKernelConstruction TF_OpKernelConstruction;
typedef struct TF_OpKernelContext TF_OpKernelContext;
typedef struct TF_KernelBuilder TF_KernelBuilder;
typedef struct TF_OpDefinitionBuilder TF_OpDefinitionBuilder;
enum { TF_OK = 0, TF_RESOURCE_EXHAUSTED = 8, TF_FLOAT = 1 };

TF_Status *TF_NewStatus(void);
void TF_DeleteStatus(TF_Status *);
int TF_GetCode(const TF_Status *);
void TF_SetStatus(TF_Status *, int code, const char *message);
void TF_OpKernelConstruction_GetAttrSize(
    TF_OpKernelConstruction *, const char *name, int32_t *list_size, int32_t *total_size, TF_Status *);
void TF_OpKernelConstruction_GetAttrInt64List(
    TF_OpKernelConstruction *, const char *name, int64_t *values, int count, TF_Status *);
void TF_OpKernelConstruction_GetAttrInt64(TF_OpKernelConstruction *, const char *name, int64_t *value, TF_Status *);
void TF_OpKernelConstruction_Failure(TF_OpKernelConstruction *, TF_Status *);
int TF_NumInputs(TF_OpKernelContext *);
int TF_NumOutputs(TF_OpKernelContext *);
void TF_GetInput(TF_OpKernelContext *, int index, TF_Tensor **, TF_Status *);
TF_Tensor *TF_AllocateOutput(
    TF_OpKernelContext *, int index, int type, const int64_t *sides, int rank, size_t bytes, TF_Status *);
void *TF_TensorData(const TF_Tensor *);
void TF_DeleteTensor(TF_Tensor *);
void TF_OpKernelContext_Failure(TF_OpKernelContext *, TF_Status *);
TF_OpDefinitionBuilder *TF_NewOpDefinitionBuilder(const char *name);
void TF_OpDefinitionBuilderAddAttr(TF_OpDefinitionBuilder *, const char *);
void TF_OpDefinitionBuilderAddInput(TF_OpDefinitionBuilder *, const char *);
void TF_OpDefinitionBuilderAddOutput(TF_OpDefinitionBuilder *, const char *);
void TF_RegisterOpDefinition(TF_OpDefinitionBuilder *, TF_Status *);
TF_KernelBuilder *TF_NewKernelBuilder(
    const char *operation, const char *device, void *(*create)(TF_OpKernelConstruction *),
    void (*compute)(void *, TF_OpKernelContext *), void (*discard)(void *));
void TF_RegisterKernelBuilder(const char *name, TF_KernelBuilder *, TF_Status *);

#define MOST 8 /* tensors given, or found */

/* function: it is told the numbers `about`, and where tensors begin (NULL: there are no more); it returns 0, or 1 for
   want of memory. sides: of each output, how many it has, and then the sides. */
struct Call {
    int (*function)(const int64_t *about, const float **given, float **found);
    int64_t *about, *sides;
};

static int64_t *numbers(TF_OpKernelConstruction *from, const char *name, TF_Status *status) {
    int32_t count = 0, total;
    TF_OpKernelConstruction_GetAttrSize(from, name, &count, &total, status);
    if (TF_GetCode(status) != TF_OK) return NULL;
    int64_t *found = calloc(count + 1, sizeof(int64_t));
    if (found)
        TF_OpKernelConstruction_GetAttrInt64List(from, name, found, count, status);
    else
        TF_SetStatus(status, TF_RESOURCE_EXHAUSTED, "no memory");
    return found;
}

static void discard(void *call) {
    if (!call) return;
    free(((struct Call *)call)->about);
    free(((struct Call *)call)->sides);
    free(call);
}

static void *create(TF_OpKernelConstruction *from) {
    TF_Status *status = TF_NewStatus();
    struct Call *call = calloc(1, sizeof(struct Call));
    int64_t address = 0;
    if (!call) TF_SetStatus(status, TF_RESOURCE_EXHAUSTED, "no memory");
    if (TF_GetCode(status) == TF_OK) TF_OpKernelConstruction_GetAttrInt64(from, "function", &address, status);
    if (TF_GetCode(status) == TF_OK) call->about = numbers(from, "about", status);
    if (TF_GetCode(status) == TF_OK) call->sides = numbers(from, "sides", status);
    if (TF_GetCode(status) == TF_OK) {
        call->function = (int (*)(const int64_t *, const float **, float **))(intptr_t)address;
    } else {
        TF_OpKernelConstruction_Failure(from, status);
        discard(call);
        call = NULL;
    }
    TF_DeleteStatus(status);
    return call;
}

static void compute(void *kernel, TF_OpKernelContext *context) {
    const struct Call *call = kernel;
    TF_Status *status = TF_NewStatus();
    TF_Tensor *inputs[MOST] = {0}, *outputs[MOST] = {0};
    const float *given[MOST] = {0};
    float *found[MOST] = {0};
    for (int k = 0; k < TF_NumInputs(context) && TF_GetCode(status) == TF_OK; k++) {
        TF_GetInput(context, k, &inputs[k], status);
        if (inputs[k]) given[k] = TF_TensorData(inputs[k]);
    }
    const int64_t *sides = call->sides;
    for (int k = 0; k < TF_NumOutputs(context) && TF_GetCode(status) == TF_OK; k++) {
        int rank = *sides++;
        size_t bytes = sizeof(float);
        for (int side = 0; side < rank; side++) bytes *= sides[side];
        outputs[k] = TF_AllocateOutput(context, k, TF_FLOAT, sides, rank, bytes, status);
        if (outputs[k]) found[k] = TF_TensorData(outputs[k]);
        sides += rank;
    }
    if (TF_GetCode(status) == TF_OK && call->function(call->about, given, found))
        TF_SetStatus(status, TF_RESOURCE_EXHAUSTED, "no memory");
    if (TF_GetCode(status) != TF_OK) TF_OpKernelContext_Failure(context, status);
    for (int k = 0; k < MOST; k++) {
        if (inputs[k]) TF_DeleteTensor(inputs[k]);
        if (outputs[k]) TF_DeleteTensor(outputs[k]);
    }
    TF_DeleteStatus(status);
}

/* Whoever loads this library finds the operation registered. */
__attribute__((constructor)) static void register_call(void) {
    TF_Status *status = TF_NewStatus();
    TF_OpDefinitionBuilder *operation = TF_NewOpDefinitionBuilder("NgcdlCall");
    TF_OpDefinitionBuilderAddInput(operation, "given: inputs * float");
    TF_OpDefinitionBuilderAddOutput(operation, "found: outputs * float");
    TF_OpDefinitionBuilderAddAttr(operation, "inputs: int >= 1");
    TF_OpDefinitionBuilderAddAttr(operation, "outputs: int >= 1");
    TF_OpDefinitionBuilderAddAttr(operation, "function: int");
    TF_OpDefinitionBuilderAddAttr(operation, "about: list(int)");
    TF_OpDefinitionBuilderAddAttr(operation, "sides: list(int)");
    TF_RegisterOpDefinition(operation, status);
    if (TF_GetCode(status) == TF_OK)
        TF_RegisterKernelBuilder(
            "NgcdlCall", TF_NewKernelBuilder("NgcdlCall", "CPU", create, compute, discard), status);
    TF_DeleteStatus(status);
}
