/* One linear layer for a batch whose rows use different adapters, in C: y = norm(x W^T + B A x),
 * W left out. */
#include <math.h>
#include <stdio.h>

#include "heddle/c_api.h"

enum { kTokens = 3, kSlots = 2, kIn = 4, kRank = 2, kOut = 5 };

/* A tensor of memory that stays ours, without gaps. */
static DLTensor tensor(void* data, DLDataType dtype, int32_t ndim, int64_t* shape) {
  DLTensor t = {.data = data, .device = {kDLCPU, 0}, .ndim = ndim, .dtype = dtype, .shape = shape};
  return t;
}

static int failed(heddle_status status) {
  if (status != HEDDLE_OK) fprintf(stderr, "status %d: %s\n", (int)status, heddle_last_error());
  return status != HEDDLE_OK;
}

int main(void) {
  if (heddle_abi_version() != HEDDLE_ABI_VERSION) return 1;
  printf("heddle %s\n", heddle_version());

  heddle_context_options options;
  heddle_context_options_init(&options);
  options.num_threads = 2;
  heddle_context* context = NULL;
  if (failed(heddle_context_create(&context, &options))) return 1;

  /* Adapter 0 is made of ones, adapter 1 of twos; row 1 has none. */
  const DLDataType f32 = {kDLFloat, 32, 1}, i32 = {kDLInt, 32, 1};
  float x[kTokens][kIn], a[kSlots][kRank][kIn], b[kSlots][kOut][kRank], weight[kOut];
  float h[kTokens][kRank], y[kTokens][kOut] = {{0}}, normed[kTokens][kOut];
  int32_t slots[kTokens] = {1, -1, 0};
  for (int i = 0; i < kTokens * kIn; ++i) x[i / kIn][i % kIn] = 1.0f;
  for (int i = 0; i < kSlots * kRank * kIn; ++i) ((float*)a)[i] = i < kRank * kIn ? 1.0f : 2.0f;
  for (int i = 0; i < kSlots * kOut * kRank; ++i) ((float*)b)[i] = i < kOut * kRank ? 1.0f : 2.0f;
  for (int i = 0; i < kOut; ++i) weight[i] = 3.0f;

  DLTensor tx = tensor(x, f32, 2, (int64_t[]){kTokens, kIn});
  DLTensor ta = tensor(a, f32, 3, (int64_t[]){kSlots, kRank, kIn});
  DLTensor tb = tensor(b, f32, 3, (int64_t[]){kSlots, kOut, kRank});
  DLTensor th = tensor(h, f32, 2, (int64_t[]){kTokens, kRank});
  DLTensor ty = tensor(y, f32, 2, (int64_t[]){kTokens, kOut});
  DLTensor tn = tensor(normed, f32, 2, (int64_t[]){kTokens, kOut});
  DLTensor tw = tensor(weight, f32, 1, (int64_t[]){kOut});
  DLTensor ids = tensor(slots, i32, 1, (int64_t[]){kTokens});
  const heddle_lora_batch batch = {.slot_ids = &ids};

  int failures = 0;
  failures += failed(
      heddle_lora_shrink(context, &th, &tx, &ta, &batch, 1.0f, false, HEDDLE_LORA_RANK_MAJOR));
  failures += failed(
      heddle_lora_expand(context, &ty, &th, &tb, &batch, 0, 1.0f, true, HEDDLE_LORA_RANK_MINOR));
  failures += failed(heddle_rms_norm(context, &tn, &ty, &tw, NULL));
  printf("y: %g %g %g\n", (double)y[0][0], (double)y[1][0], (double)y[2][0]);
  printf("normed: %g %g %g\n", (double)normed[0][0], (double)normed[1][0], (double)normed[2][0]);
  if (y[0][4] != 32.0f || y[1][4] != 0.0f || y[2][4] != 8.0f) ++failures;
  if (!(fabsf(normed[0][4] - 3.0f) < 1e-5f) || normed[1][4] != 0.0f) ++failures;

  /* A wrong call returns a status; the message names the tensor, the axis and both values. */
  if (heddle_rms_norm(context, &tn, &tx, &tw, NULL) != HEDDLE_INVALID_ARGUMENT) ++failures;
  printf("a wrong call: %s\n", heddle_last_error());

  heddle_context_destroy(context);
  return failures != 0;
}
