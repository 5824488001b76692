#pragma once

#include <memory>

#include "heddle/c_engine.h"

#include "engine/thread/engine_thread.h"

struct heddle_engine {
  explicit heddle_engine(const heddle::EngineOptions& options) : thread(options) {}

  std::shared_ptr<heddle::EventQueue> polled = std::make_shared<heddle::EventQueue>();
  heddle::EngineThread thread;  // ends before the queue of its events
};
