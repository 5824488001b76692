/* A model with several adapters in C: rows of one batch, each with its own adapter, polled as they
 * come.
 *
 *   engine MODEL.gguf [NAME=FOLDER]...      one prompt for the base model, the same one for each
 *     adapter */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "heddle/c_engine.h"

static heddle_string string(const char* text) {
  heddle_string s = {text, strlen(text)};
  return s;
}

static int failed(heddle_status status) {
  if (status != HEDDLE_OK) fprintf(stderr, "%s\n", heddle_engine_last_error());
  return status != HEDDLE_OK;
}

/* One conversation for the adapter; the base model where the name is empty. */
static int submit(heddle_engine* engine, heddle_string adapter) {
  const heddle_message message = {string("user"), string("Opposites: hot, big, fast")};
  heddle_engine_request request;
  heddle_engine_request_init(&request);
  request.messages = &message; /* goes through the model's chat template */
  request.num_messages = 1;
  request.adapter = adapter;
  request.max_tokens = 32;
  int64_t id;
  return failed(heddle_engine_submit(engine, &request, &id));
}

/* Polls until all rows have ended; ids count from 0. Returns how many failed. */
static int answer(heddle_engine* engine, char** names, int num_rows) {
  int num_failed = 0;
  for (int num_ended = 0; num_ended < num_rows;) {
    heddle_engine_event* event;
    if (failed(heddle_engine_poll(engine, -1, &event))) return 1;
    const char* name = event->request == 0 ? "base" : names[event->request];
    printf("%s: +%zu bytes\n", name, event->text.size);
    if (event->finish_reason != HEDDLE_FINISH_NONE) {
      ++num_ended;
      if (event->finish_reason == HEDDLE_FINISH_ERROR) {
        ++num_failed;
        printf("%s (error): %s\n", name, event->error.data);
      } else {
        const char* reason = event->finish_reason == HEDDLE_FINISH_STOP ? "stop" : "length";
        printf("%s (%s): %s\n", name, reason, event->answer.data);
      }
    }
    heddle_engine_event_destroy(event);
  }
  return num_failed;
}

int main(int argc, char** argv) {
  if (argc < 2 || heddle_engine_abi_version() != HEDDLE_ENGINE_ABI_VERSION) {
    fprintf(stderr, "usage: engine MODEL.gguf [NAME=FOLDER]...\n");
    return 2;
  }
  heddle_engine_options options;
  heddle_engine_options_init(&options);
  options.max_context = 512;
  heddle_engine* engine;
  if (failed(heddle_engine_create(&engine, string(argv[1]), &options))) return 2;

  int failures = submit(engine, string(""));
  for (int i = 2; i < argc && failures == 0; ++i) {
    char* split = strchr(argv[i], '=');
    if (split == NULL) {
      fprintf(stderr, "%s: expected NAME=FOLDER\n", argv[i]);
      failures = 1;
      break;
    }
    *split = '\0';
    failures = failed(heddle_engine_add_adapter(engine, string(argv[i]), string(split + 1), false));
    if (failures == 0) failures = submit(engine, string(argv[i]));
  }
  const int wrong_input = failures;
  if (!wrong_input) failures = answer(engine, argv + 1, argc - 1);
  heddle_engine_destroy(engine);
  return wrong_input ? 2 : failures != 0;
}
