// Records: what a run measured, as JSON that outlives it. results/SCHEMA.md describes every field.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/session.h"
#include "bench/timer.h"

namespace ladder {

inline constexpr const char* kRecordSchema = "ladder.record/2";

// Everything that a figure may depend on besides the source: device, driver, libraries, compiler, commit.
nlohmann::json environment();

nlohmann::json to_json(const Result& result);
nlohmann::json to_json(const Calibration& calibration);

// Throws UsageError, naming the flag, if no file can be written at `path`: asked before any work is done.
void require_writable(const std::string& flag, const std::string& path);

// The record as a file: a line for each of its fields, and for each result.
std::string record_text(const nlohmann::json& record);

}  // namespace ladder
