--- The command `:Midspan`.
local M = {}

local STATUS_TIMEOUT_MS = 1000
-- Completing the command line must not be felt; then the presets are left out.
local PRESETS_TIMEOUT_MS = 300

---@alias midspan.Arguments vim.api.keyset.create_user_command.command_args

local function status()
  local report, switch = require("midspan.status"), require("midspan.switch")
  local lines = {}
  if not switch.is_on() then
    lines[#lines + 1] = "Midspan: suggestions are off (:Midspan toggle switches them on)"
  elseif not switch.is_on(0) then
    lines[#lines + 1] = "Midspan: suggestions are off in this buffer (:Midspan toggle buffer switches them on)"
  end
  local clients = vim.lsp.get_clients({ name = "midspan" })
  for _, client in ipairs(clients) do
    local _, problem = report.ask(client, STATUS_TIMEOUT_MS)
    local note = problem and (" (%s)"):format(problem) or ""
    lines[#lines + 1] = ("Midspan: %s%s"):format(report.describe(client), note)
  end
  if #clients == 0 then
    lines[#lines + 1] = "Midspan: " .. report.absence()
  end
  vim.notify(table.concat(lines, "\n"))
end

--- Gives what a command with a range is about; text selected letter by letter is not widened to whole lines.
---@param command midspan.Arguments
---@return midspan.Range
local function range_of(command)
  local from, to = vim.fn.getpos("'<"), vim.fn.getpos("'>")
  local is_selection = command.range == 2 and from[2] == command.line1 and to[2] == command.line2
  local last = vim.api.nvim_buf_get_lines(0, command.line2 - 1, command.line2, true)[1]
  if is_selection and vim.fn.visualmode() == "v" then
    local bytes_of_last = vim.str_utf_end(last, math.max(1, math.min(to[3], #last)))
    local end_col = last == "" and 0 or math.min(to[3] + bytes_of_last, #last)
    return { row = from[2] - 1, col = from[3] - 1, end_row = to[2] - 1, end_col = end_col }
  end
  return { row = command.line1 - 1, col = 0, end_row = command.line2 - 1, end_col = #last }
end

---@param command midspan.Arguments
local function edit(command)
  local words = vim.list_slice(command.fargs, 2)
  require("midspan.presets").choose(vim.api.nvim_get_current_buf(), range_of(command), table.concat(words, " "))
end

---@param command midspan.Arguments
local function holes(command)
  local range = command.range > 0 and range_of(command) or nil
  require("midspan.edit").holes(vim.api.nvim_get_current_buf(), range)
end

---@param verb "accept"|"reject"
local function decide(verb)
  return function(command)
    require("midspan.hunks")[command.fargs[2] == "all" and verb .. "_all" or verb]()
  end
end

---@class midspan.Action
---@field run fun(command: midspan.Arguments)
---@field words? fun(): string[] what may follow

---@return fun(): string[]
local function words(...)
  local list = { ... }
  return function()
    return list
  end
end

---@type table<string, midspan.Action>
local actions = {
  status = { run = status },
  toggle = {
    run = function(command)
      require("midspan").toggle(command.fargs[2] == "buffer" and 0 or nil)
    end,
    words = words("buffer"),
  },
  edit = {
    run = edit,
    words = function()
      return require("midspan.presets").names(vim.api.nvim_get_current_buf(), PRESETS_TIMEOUT_MS)
    end,
  },
  holes = { run = holes },
  accept = { run = decide("accept"), words = words("all") },
  reject = { run = decide("reject"), words = words("all") },
  watch = {
    run = function()
      require("midspan.watch").toggle()
    end,
  },
  restart = {
    run = function()
      require("midspan.restart")()
    end,
  },
  log = {
    run = function()
      vim.cmd.tabnew(vim.fn.fnameescape(vim.lsp.log.get_filename()))
    end,
  },
}

---@return string[]
local function names()
  local list = vim.tbl_keys(actions)
  table.sort(list)
  return list
end

--- Runs `:Midspan [action]`; without an action it prints the status.
---@param command midspan.Arguments
function M.run(command)
  local name = command.fargs[1] or "status"
  local action = actions[name]
  if not action then
    local known = table.concat(names(), ", ")
    vim.notify(("Midspan: no action %q; there are %s"):format(name, known), vim.log.levels.ERROR)
    return
  end
  action.run(command)
end

--- Completes the action, then what may follow it.
---@param lead string
---@param line string
---@return string[]
function M.complete(lead, line)
  local name = line:match("Midspan%s+(%S+)%s")
  local action = name and actions[name]
  local offered = not name and names() or action and action.words and action.words() or {}
  return vim.tbl_filter(function(each)
    return vim.startswith(each, lead)
  end, offered)
end

return M
