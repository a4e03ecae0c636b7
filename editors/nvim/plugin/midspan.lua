-- Defines names only; the modules are loaded when a server attaches, a command runs or a key is pressed.

if vim.g.loaded_midspan then
  return
end
vim.g.loaded_midspan = true

---@param modes string|string[]
---@param name string
---@param module string
---@param action string a function of the module
---@param desc string
local function plug(modes, name, module, action, desc)
  vim.keymap.set(modes, ("<Plug>(midspan-%s)"):format(name), function()
    require(module)[action]()
  end, { desc = "Midspan: " .. desc })
end

plug("i", "accept", "midspan", "accept", "accept the suggestion")
plug("i", "accept-word", "midspan", "accept_word", "accept the next word of the suggestion")
plug("i", "accept-line", "midspan", "accept_line", "accept the next line of the suggestion")
plug("i", "next", "midspan", "next", "show the next suggestion")
plug("i", "prev", "midspan", "prev", "show the previous suggestion")
plug("i", "dismiss", "midspan", "dismiss", "dismiss the suggestion")
plug({ "n", "i" }, "toggle", "midspan", "toggle", "switch suggestions on or off")
plug("n", "hunk-accept", "midspan.hunks", "accept", "accept the proposed hunk")
plug("n", "hunk-reject", "midspan.hunks", "reject", "reject the proposed hunk")
plug("n", "hunk-accept-all", "midspan.hunks", "accept_all", "accept all proposed hunks")
plug("n", "hunk-reject-all", "midspan.hunks", "reject_all", "reject all proposed hunks")
plug("n", "hunk-next", "midspan.hunks", "next", "go to the next proposed hunk")
plug("n", "hunk-prev", "midspan.hunks", "prev", "go to the previous proposed hunk")
vim.keymap.set({ "n", "x" }, "<Plug>(midspan-edit)", ":Midspan edit<CR>", { silent = true, desc = "Midspan: edit" })
vim.keymap.set({ "n", "x" }, "<Plug>(midspan-holes)", ":Midspan holes<CR>", { silent = true, desc = "Midspan: holes" })

vim.api.nvim_create_user_command("Midspan", function(command)
  require("midspan.command").run(command)
end, {
  nargs = "*",
  range = true,
  desc = "Midspan: status, toggle, edit, holes and more",
  complete = function(lead, line)
    return require("midspan.command").complete(lead, line)
  end,
})

-- A checkout that no plugin manager installed has no tags of its help yet; where none can be written, there are none.
local doc = vim.fs.joinpath(vim.fs.dirname(vim.fs.dirname(vim.fs.abspath(debug.getinfo(1, "S").source:sub(2)))), "doc")
if not vim.uv.fs_stat(vim.fs.joinpath(doc, "tags")) then
  pcall(vim.cmd.helptags, { vim.fn.fnameescape(doc), mods = { emsg_silent = true } })
end

local group = vim.api.nvim_create_augroup("midspan", {})
vim.api.nvim_create_autocmd("FileType", {
  group = group,
  desc = "Midspan: say once that the program is missing, which Neovim only logs",
  callback = function(event)
    if not vim.lsp.is_enabled or not vim.lsp.is_enabled("midspan") or vim.bo[event.buf].buftype ~= "" then
      return
    end
    local config = vim.lsp.config.midspan
    local program = type(config.cmd) == "table" and config.cmd[1]
    local is_wanted = not config.filetypes or vim.list_contains(config.filetypes, event.match)
    if program and is_wanted and vim.fn.executable(program) == 0 then
      vim.schedule(function()
        vim.notify(("Midspan: `%s` is not executable; :checkhealth midspan"):format(program), vim.log.levels.WARN)
      end)
      return true -- once is enough
    end
  end,
})
vim.api.nvim_create_autocmd("LspAttach", {
  group = group,
  desc = "Midspan: switch inline completion on in the buffer, and go on watching the canvas",
  callback = function(event)
    local client = vim.lsp.get_client_by_id(event.data.client_id)
    -- Older ones lack what the adapter calls; checkhealth says so.
    if client and client.name == "midspan" and vim.fn.has("nvim-0.11") == 1 then
      require("midspan.guard").attach(client, event.buf)
      if package.loaded["midspan.watch"] then
        package.loaded["midspan.watch"].attach(client)
      end
    end
  end,
})
vim.api.nvim_create_autocmd("LspProgress", {
  group = group,
  desc = "Midspan: show how far an edit is",
  callback = function(event)
    if package.loaded["midspan.edit"] then
      package.loaded["midspan.edit"].progress(event.data.client_id, event.data.params)
    end
  end,
})
