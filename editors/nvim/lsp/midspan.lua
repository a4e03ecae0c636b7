-- Configuration of the language server for `vim.lsp.enable("midspan")`; override with `vim.lsp.config("midspan", ...)`.

---@type vim.lsp.Config
return {
  cmd = { "midspan", "lsp" },
  -- The embedded checkpoint knows Python; a larger one deserves a longer list.
  filetypes = { "python" },
  root_markers = { "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", ".git" },
  -- A single file without a project is completed too.
  workspace_required = false,
  -- Neovim 0.11 does not say so itself; without it the server would offer everything in the completion menu too.
  capabilities = { textDocument = { inlineCompletion = { dynamicRegistration = false } } },
  before_init = function(params, config)
    -- What the server offers is settled before it can ask for its settings.
    local popup = vim.tbl_get(config, "settings", "midspan", "popup")
    if popup ~= nil then
      params.initializationOptions = vim.tbl_extend("keep", config.init_options or {}, { popup = popup })
    end
  end,
  commands = {
    ["midspan.applyEdit"] = function(command, ctx)
      require("midspan.edit").command("midspan/edit", command, ctx)
    end,
    ["midspan.applyHoles"] = function(command, ctx)
      require("midspan.edit").command("midspan/holes", command, ctx)
    end,
  },
  handlers = {
    ["midspan/status"] = function(_, result, ctx)
      require("midspan.status").remember(ctx.client_id, result)
    end,
    ["midspan/draft"] = function(_, result)
      require("midspan.watch").draw(result)
    end,
  },
}
